"""docs/openapi.json names the routes that exist, and no others."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("starlette")

from starlette.routing import Route

from substrate.review import Review
from substrate.review.plan_request import PlanRequest, plan_request

DOCUMENT = json.loads((Path(__file__).parents[3] / "docs/openapi.json").read_text("utf-8"))


async def _ask(words: list[str], cwd: str) -> bytes:
    raise AssertionError((words, cwd))


def _routes(*, read_only: bool) -> set[tuple[str, str]]:
    review = Review(lambda request: pytest.fail("asked"), _ask)
    return {
        (route.path, method)
        for route in review.routes(read_only=read_only)
        if isinstance(route, Route)
        for method in route.methods or ()
        if method != "HEAD"
    }


def test_every_route_is_described() -> None:
    described = {
        (path, method.upper()) for path, item in DOCUMENT["paths"].items() for method in item
    }
    assert described == _routes(read_only=False)


def test_nothing_can_be_carried_out_on_a_read_only_server() -> None:
    left_out = _routes(read_only=False) - _routes(read_only=True)
    assert left_out == {("/v1/carry-out", "POST")}


def test_the_described_request_matches_what_the_server_reads() -> None:
    schema = DOCUMENT["components"]["schemas"]["PlanRequest"]
    assert set(schema["properties"]) == set(PlanRequest._fields)
    for verb in schema["properties"]["verb"]["enum"]:
        assert plan_request({"verb": verb, "scope": "c-1"}).verb == verb


def test_every_reference_leads_somewhere() -> None:
    text = json.dumps(DOCUMENT)
    named = {part.split('"')[0] for part in text.split('"#/components/schemas/')[1:]}
    assert named == set(DOCUMENT["components"]["schemas"])
