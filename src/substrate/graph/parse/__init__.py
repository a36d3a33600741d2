"""From a blob's bytes to facts: language, symbols, imports, calls."""

from __future__ import annotations

from substrate.room_door import lazy_names

TYPE_CHECKING = False
if TYPE_CHECKING:  # what other rooms may use
    from substrate.graph.parse import languages as languages
    from substrate.graph.parse.blob_facts import CLASS_KINDS as CLASS_KINDS
    from substrate.graph.parse.blob_facts import Call as Call
    from substrate.graph.parse.blob_facts import Facts as Facts
    from substrate.graph.parse.blob_facts import Import as Import
    from substrate.graph.parse.blob_facts import Links as Links
    from substrate.graph.parse.blob_facts import Outline as Outline
    from substrate.graph.parse.blob_facts import Span as Span
    from substrate.graph.parse.blob_facts import Symbol as Symbol
    from substrate.graph.parse.blob_facts import encode_facts as encode_facts
    from substrate.graph.parse.blob_facts import id_hashes as id_hashes
    from substrate.graph.parse.blob_facts import name_hash as name_hash
    from substrate.graph.parse.blob_facts import name_hashes as name_hashes
    from substrate.graph.parse.blob_facts import outline_of as outline_of
    from substrate.graph.parse.extract_facts import extract as extract
    from substrate.graph.parse.extract_facts import extract_all as extract_all
    from substrate.graph.parse.fact_source import Batch as Batch
    from substrate.graph.parse.fact_source import FactSource as FactSource
    from substrate.graph.parse.fact_source import Unpacker as Unpacker
    from substrate.graph.parse.fact_source import Wanted as Wanted
    from substrate.graph.parse.fact_source import batches as batches
    from substrate.graph.parse.fact_source import failed_facts as failed_facts
    from substrate.graph.parse.fact_source import wanted as wanted
    from substrate.graph.parse.facts_cache import DAMAGED as DAMAGED
    from substrate.graph.parse.facts_cache import Cache as Cache
    from substrate.graph.parse.facts_cache import packer as packer
    from substrate.graph.parse.facts_cache import row_key as row_key
    from substrate.graph.parse.languages import name_key as name_key

__getattr__ = lazy_names(
    __name__,
    {
        "blob_facts": (
            "CLASS_KINDS, Call, Facts, Import, Links, Outline, Span, Symbol, encode_facts, "
            "id_hashes, name_hash, name_hashes, outline_of"
        ),
        "extract_facts": "extract, extract_all",
        "fact_source": "Batch, FactSource, Unpacker, Wanted, batches, failed_facts, wanted",
        "facts_cache": "Cache, DAMAGED, packer, row_key",
        "languages": "name_key",
    },
)
