"""The routes for reviewing, for any server of Starlette's."""

from __future__ import annotations

import asyncio
import json
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import NamedTuple, TypeVar

from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import BaseRoute, Route

from substrate.errors import StalePlanError, UsageError
from substrate.model import ROOT, RelPath
from substrate.recorder import Place, Timeline, Wanted
from substrate.review import event_stream
from substrate.review.change_documents import diff_document
from substrate.review.http_answers import read_document
from substrate.review.output_document import output_document
from substrate.review.plan_documents import preview
from substrate.review.plan_request import PlanRequest, path_named, plan_request
from substrate.review.row_documents import MOST_ROWS, now_document, rows_document
from substrate.review.scope_words import scope_meant
from substrate.review.tree_documents import file_document, tree_document

#: Ask the command line: words without `--json`, the directory → its JSON document.
Ask = Callable[[list[str], str], Awaitable[bytes]]
Answer = TypeVar("Answer")

_MOST_PLANS = 200
_MOST_TIMELINES = 32
_PAGE = 50
_MOST_PAGE = 1_000
_FILTERS = ("changed", "failed", "network")


class _Plan(NamedTuple):
    request: PlanRequest
    words: tuple[str, ...]
    cwd: str


class Review:
    """`place_of` finds the workspace of a request, `ask` runs a verb. Event streams end once
    the server `is_stopping`."""

    def __init__(
        self,
        place_of: Callable[[Request], Place],
        ask: Ask,
        is_stopping: Callable[[], bool] = lambda: False,
    ) -> None:
        self._place_of = place_of
        self._ask = ask
        self._is_stopping = is_stopping
        self._plans: OrderedDict[str, _Plan] = OrderedDict()
        self._timelines: OrderedDict[str, Timeline] = OrderedDict()

    def routes(self, *, read_only: bool = False) -> list[BaseRoute]:
        reading: list[BaseRoute] = [
            Route("/v1/log", self._log, methods=["GET"]),
            Route("/v1/entries/{id}", self._entry, methods=["GET"]),
            Route("/v1/output/{id}", self._output, methods=["GET"]),
            Route("/v1/diff", self._diff, methods=["GET"]),
            Route("/v1/blame", self._blame, methods=["GET"]),
            Route("/v1/tree/{id}", self._tree, methods=["GET"]),
            Route("/v1/file/{id}", self._file, methods=["GET"]),
            Route("/v1/worlds", self._worlds, methods=["GET"]),
            Route("/v1/recover", self._recover, methods=["GET"]),
            Route("/v1/search", self._search, methods=["GET"]),
            Route("/v1/rows", self._rows, methods=["GET"]),
            Route("/v1/now", self._now, methods=["GET"]),
            Route("/v1/events", self._events, methods=["GET"]),
            Route("/v1/preview", self._preview, methods=["POST"]),
        ]
        carrying: list[BaseRoute] = [Route("/v1/carry-out", self._carry_out, methods=["POST"])]
        return reading if read_only else [*reading, *carrying]

    # -- answers of verbs ------------------------------------------------------------------------

    async def _log(self, request: Request) -> Response:
        place, words = self._place_of(request), ["log", "--limit=0"]
        if "path" in request.query_params:
            words.append(f"--path={_typed(place, _path(request))}")
        if "session" in request.query_params:
            words.append(f"--session={request.query_params['session']}")
        return _paged(request, await self._ask(words, str(place.cwd)), "commands")

    async def _entry(self, request: Request) -> Response:
        place = self._place_of(request)
        text = request.path_params["id"]
        scope_meant(text, place)  # an id, not an option
        return _json(await self._ask(["show", text], str(place.cwd)))

    async def _blame(self, request: Request) -> Response:
        place, words = self._place_of(request), ["blame"]
        if "lines" in request.query_params:
            words.append(f"-L{request.query_params['lines']}")
        words += ["--", _typed(place, _path(request))]
        return _paged(request, await self._ask(words, str(place.cwd)), "lines")

    async def _worlds(self, request: Request) -> Response:
        answer = await self._ask(["world", "list"], str(self._place_of(request).cwd))
        return _paged(request, answer, "worlds")

    async def _recover(self, request: Request) -> Response:
        answer = await self._ask(["recover", "list"], str(self._place_of(request).cwd))
        return _paged(request, answer, "recoveries")

    async def _search(self, request: Request) -> Response:
        text = request.query_params.get("q", "")
        if not text or "\0" in text:
            raise UsageError("q is the text to search for", hint="/v1/search?q=TEXT")
        words = ["recover", "search", "-i", "--", text]
        answer = await self._ask(words, str(self._place_of(request).cwd))
        return _paged(request, answer, "matches")

    # -- answers of the recorder -----------------------------------------------------------------

    async def _rows(self, request: Request) -> Response:
        place, query = self._place_of(request), request.query_params
        named = [one for one in query.get("filter", "").split(",") if one]
        if not set(named) <= set(_FILTERS):
            raise UsageError("filter: not known", hint=f"of {', '.join(_FILTERS)}, by commas")
        wanted = Wanted(
            changed="changed" in named, failed="failed" in named, network="network" in named,
            agent=query.get("agent", ""), text=query.get("q", ""),
        )  # fmt: skip
        start, count = _number(request, "from", 0, lowest=-MOST_ROWS), _number(request, "n", 60)
        timeline = self._timeline(place)
        return await _document(rows_document, place, timeline, wanted, start, count)

    async def _now(self, request: Request) -> Response:
        return await _document(now_document, self._place_of(request))

    async def _diff(self, request: Request) -> Response:
        place, query = self._place_of(request), request.query_params
        paths = tuple(path_named(one) for one in query.getlist("path"))
        scope, whole = query.get("scope", "@"), "whole" in query
        found = await asyncio.to_thread(diff_document, place, scope, paths, whole=whole)
        return _answer(found)

    async def _output(self, request: Request) -> Response:
        place, query = self._place_of(request), request.query_params
        scope_meant(request.path_params["id"], place)
        stream, start = query.get("stream", "stdout"), _number(request, "from", 0)
        return await _document(output_document, place, request.path_params["id"], stream, start)

    async def _tree(self, request: Request) -> Response:
        place, under = self._place_of(request), request.query_params.get("under", "")
        path = path_named(under) if under else ROOT
        return await _document(tree_document, place, request.path_params["id"], path)

    async def _file(self, request: Request) -> Response:
        place = self._place_of(request)
        return await _document(file_document, place, request.path_params["id"], _path(request))

    async def _events(self, request: Request) -> Response:
        said = request.headers.get("last-event-id", "")
        after = int(said) if said.isascii() and said.isdigit() and len(said) < 19 else None
        stream = event_stream.events(self._place_of(request), after, self._is_stopping)
        return StreamingResponse(stream, media_type="text/event-stream")

    # -- plans -----------------------------------------------------------------------------------

    async def _preview(self, request: Request) -> Response:
        wanted = plan_request(await read_document(request))
        place = self._place_of(request)
        found = await asyncio.to_thread(preview, place, wanted)
        self._plans[found.plan_id] = _Plan(wanted, found.words, str(place.cwd))
        self._plans.move_to_end(found.plan_id)
        while len(self._plans) > _MOST_PLANS:
            self._plans.popitem(last=False)
        return _answer(found.document)

    async def _carry_out(self, request: Request) -> Response:
        document = await read_document(request)
        named = document.get("plan_id")
        plan = self._plans.get(named) if isinstance(named, str) else None
        if plan is None or not isinstance(named, str):
            raise StalePlanError(
                "no preview with this plan_id is known; nothing was changed", hint="preview again"
            )
        words = list(plan.words)
        if plan.words[0] == "world":
            place = self._place_of(request)
            if (await asyncio.to_thread(preview, place, plan.request)).plan_id != named:
                raise StalePlanError(
                    "the preview is out of date; nothing was changed", hint="preview again"
                )
        else:
            words.append(f"--plan={named}")
        return _json(await self._ask(words, plan.cwd))

    def _timeline(self, place: Place) -> Timeline:
        name = str(place.workspace.root)
        found = self._timelines.setdefault(name, Timeline())
        self._timelines.move_to_end(name)
        while len(self._timelines) > _MOST_TIMELINES:
            self._timelines.popitem(last=False)
        return found


async def _document(make: Callable[..., dict[str, object]], *values: object) -> Response:
    return _answer(await asyncio.to_thread(make, *values))


def _answer(document: dict[str, object]) -> Response:
    return JSONResponse(document)


def _json(data: bytes) -> Response:
    return Response(data, media_type="application/json")


def _paged(request: Request, data: bytes, name: str) -> Response:
    """A part of a list, and `next_cursor` if there is more."""
    document = json.loads(data)
    start = _number(request, "cursor", 0)
    count = min(_number(request, "n", _PAGE), _MOST_PAGE)
    everything = document.get(name, [])
    document[name] = everything[start : start + count]
    end = start + count
    document["next_cursor"] = str(end) if end < len(everything) else None
    return JSONResponse(document)


def _number(request: Request, name: str, otherwise: int, *, lowest: int = 0) -> int:
    text = request.query_params.get(name, "")
    digits = text.removeprefix("-")
    if not text:
        return otherwise
    if not (digits.isascii() and digits.isdigit() and len(digits) < 10) or int(text) < lowest:
        raise UsageError(f"{name}: not a number that fits: {text[:20]!r}", hint="e.g. 0")
    return int(text)


def _path(request: Request) -> RelPath:
    query = request.query_params
    return path_named({"path": query.get("path"), "encoded": "encoded" in query})


def _typed(place: Place, path: RelPath) -> str:
    from substrate.recorder import typed_path

    return typed_path(place, path)
