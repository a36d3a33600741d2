"""Convert transcripts of coding agents into execution logs."""

from __future__ import annotations

from substrate.room_door import lazy_names

TYPE_CHECKING = False
if TYPE_CHECKING:  # what other rooms may use
    from substrate.packs.transcripts.transcript_lines import TranscriptReport as TranscriptReport
    from substrate.packs.transcripts.transcript_lines import sentences as sentences
    from substrate.packs.transcripts.transcript_to_pack import PackedTranscript as PackedTranscript
    from substrate.packs.transcripts.transcript_to_pack import Session as Session
    from substrate.packs.transcripts.transcript_to_pack import Trees as Trees
    from substrate.packs.transcripts.transcript_to_pack import pack_transcript as pack_transcript

__getattr__ = lazy_names(
    __name__,
    {
        "transcript_lines": "TranscriptReport, sentences",
        "transcript_to_pack": "PackedTranscript, Session, Trees, pack_transcript",
    },
)
