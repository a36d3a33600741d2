"""The HTTP interface for reviewing a history: rows, diffs, files, previews, events.

The daemon serves it on its unix socket, the page on loopback. Reading and previews ask the
recorder. What a verb of the command line answers or carries out is asked from that verb, so that
both agree.
"""

from __future__ import annotations

from substrate.room_door import lazy_names

TYPE_CHECKING = False
if TYPE_CHECKING:  # what other rooms may use
    from substrate.review.change_documents import diff_document as diff_document
    from substrate.review.http_answers import error_document as error_document
    from substrate.review.http_answers import error_handlers as error_handlers
    from substrate.review.http_answers import read_document as read_document
    from substrate.review.review_routes import Review as Review
    from substrate.review.scope_words import scope_meant as scope_meant
    from substrate.review.verb_call import call_verb as call_verb

__getattr__ = lazy_names(
    __name__,
    {
        "change_documents": "diff_document",
        "http_answers": "error_document, error_handlers, read_document",
        "review_routes": "Review",
        "scope_words": "scope_meant",
        "verb_call": "call_verb",
    },
)
