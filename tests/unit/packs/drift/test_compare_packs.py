"""Comparing packs: a difference is one entry, of the right type, in a steady order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from substrate.packs.drift.compare_packs import compare
from substrate.packs.drift.content_diff import MAX_BYTES, MAX_LINES, diff_contents, diff_lines
from substrate.packs.drift.drift_types import Drift
from substrate.packs.exchange.sidecars import Sidecar, to_bytes
from substrate.packs.format.manifest import Input, Manifest, Output, Pack, Step
from substrate.packs.replay.base_tree import BASE_NAME, base_record
from substrate.packs.store.ctx_store import Store


def steps(store: Store, *calls: str) -> tuple[Step, ...]:
    """`read:a>x` is a call of read with parameter a and output x."""
    made = []
    for n, call in enumerate(calls):
        tool, _, rest = call.partition(":")
        parameter, _, output = rest.partition(">")
        ref = store.objects.write(output.encode()).ref
        made.append(Step(n, "tool_call", tool, {"p": parameter}, ref, True))
    return tuple(made)


def drifts(store: Store, manifest: Manifest, a: Sequence[str], b: Sequence[str]) -> list[Drift]:
    packs = [
        Pack("sha256:" + digit * 64, manifest._replace(steps=steps(store, *calls)))
        for digit, calls in (("a", a), ("b", b))
    ]
    return list(compare(store.objects, *packs).entries)


def told(found: Sequence[Drift]) -> list[tuple[str, int | None]]:
    return [(drift.type, drift.step) for drift in found]


def test_one_inserted_step_is_one_entry(store: Store, manifest: Manifest) -> None:
    a = [f"t{n % 3}:{n}>out {n}" for n in range(8)]
    found = drifts(store, manifest, a, [*a[:2], "new:x>y", *a[2:]])
    assert told(found) == [("tool_drift", 2)]
    assert found[0].description == "step 2: new was added"


def test_a_removed_a_changed_and_a_moved_step(store: Store, manifest: Manifest) -> None:
    a = [f"t{n % 3}:{n}>out {n}" for n in range(8)]
    assert told(drifts(store, manifest, a, [*a[:5], *a[6:]])) == [("tool_drift", 5)]
    moved = drifts(store, manifest, a, [a[0], *a[2:6], a[1], *a[6:]])
    assert [drift.description for drift in moved] == ["step 1: t1 comes as step 5"]
    block = drifts(store, manifest, a, [*a[:1], *a[4:7], *a[1:4], a[7]])
    assert len(block) == 1
    assert "steps 1 to 3 come as steps 4 to 6" in block[0].description or (
        "steps 4 to 6 come as steps 1 to 3" in block[0].description
    )
    assert block[0].step == 1
    other = drifts(store, manifest, a, [*a[:3], "other:z>q", *a[4:]])
    assert [drift.description for drift in other] == ["step 3: other instead of t0"]


def test_parameters_and_outputs(store: Store, manifest: Manifest) -> None:
    a = ["read:a>1", "run:b>2", "read:c>3"]
    found = drifts(store, manifest, a, ["read:a>1", "run:B>2", "read:c>4"])
    assert told(found) == [("param_drift", 1), ("reasoning_drift", 2)]
    assert (found[0].a, found[0].b) == ({"p": "b"}, {"p": "B"})
    assert found[1].content is not None
    assert "-3" in found[1].content.unified()
    both = drifts(store, manifest, a, ["read:a>1", "run:B>5", "read:c>3"])
    assert told(both) == [("param_drift", 1), ("reasoning_drift", 1)]


def test_entries_come_in_the_order_of_the_steps(store: Store, manifest: Manifest) -> None:
    a = [f"t:{n}>{n}" for n in range(10)]
    b = ["i:i>i", *a[:4], "t:4>changed", *a[5:8], "t:8x>8", "i:j>j", a[9]]
    assert told(drifts(store, manifest, a, b)) == [
        ("tool_drift", 0),
        ("reasoning_drift", 4),
        ("param_drift", 8),
        ("tool_drift", 10),
    ]


def test_a_moved_step_that_also_gave_another_output(store: Store, manifest: Manifest) -> None:
    a = [f"t{n}:{n}>{n}" for n in range(6)]
    found = drifts(store, manifest, a, [*a[1:5], "t0:0>changed", a[5]])
    assert told(found) == [("tool_drift", 0), ("reasoning_drift", 0)]


def test_when_it_ran_is_no_drift(store: Store, manifest: Manifest) -> None:
    later = manifest._replace(created="2027-01-01T00:00:00Z", parent="sha256:" + "9" * 64)
    report = compare(store.objects, store.add(manifest), store.add(later))
    assert report.ref_a != report.ref_b
    assert report.fields()["has_drift"] is False


def test_ids_of_recordings_are_no_drift(store: Store, manifest: Manifest) -> None:
    def recorded(number: int) -> Pack:
        base = base_record("/project", f"{number}" * 40).encode()
        step = Step(
            0,
            "command",
            "shell",
            {"command": "ls", "command_id": f"c-1m7h9gjx0f4{number}x"},
            "",
            True,
        )
        return store.add(
            manifest._replace(
                model=manifest.model._replace(parameters={"session_id": f"s-{number}", "t": 0}),
                inputs=(Input(BASE_NAME, store.objects.write(base).ref, len(base)),),
                steps=(step,),
            )
        )

    assert compare(store.objects, recorded(1), recorded(2)).entries == ()
    one = recorded(1)
    step = one.manifest.steps[0]
    tool_id = replace(step, parameters={"command": "ls", "command_id": "mine"})
    other = store.add(one.manifest._replace(steps=(tool_id,)))
    assert told(compare(store.objects, one, other).entries) == [("param_drift", 0)]


def test_outputs_belong_together_by_name(store: Store, manifest: Manifest) -> None:
    one, two = store.objects.write(b"1").ref, store.objects.write(b"2").ref

    def pack(*outputs: tuple[str, str]) -> Pack:
        return store.add(manifest._replace(outputs=tuple(Output(*output) for output in outputs)))

    def entries(a: Pack, b: Pack) -> list[str]:
        return [drift.description for drift in compare(store.objects, a, b).entries]

    a = pack(("x", one), ("y", one), ("y", two))
    assert entries(a, pack(("y", one), ("x", one), ("y", two))) == [
        "the outputs come in another order"
    ]
    assert entries(a, pack(("x", one), ("y", one), ("y", one))) == ["output y (number 2) differs"]
    assert entries(a, pack(("x", one), ("y", one), ("z", two))) == [
        "output y (number 2) was removed",
        "output z was added",
    ]


def test_a_contents_difference_is_shown_by_lines() -> None:
    a = [f"line {n}" for n in range(100)]
    b = [*a[:50], "new", *a[51:]]
    diff = diff_lines(a, b)
    assert diff.unified().split("\n") == [
        "@@ -48,7 +48,7 @@",
        *(" line 47", " line 48", " line 49", "-line 50", "+new"),
        *(" line 51", " line 52", " line 53"),
    ]
    long = diff_lines([], [str(n) for n in range(MAX_LINES + 5)])
    assert long.summary == "… and 5 more lines"


def test_contents_that_are_no_text_or_not_there(store: Store) -> None:
    put = store.objects.write
    assert diff_contents(store.objects, put(b"\0a").ref, put(b"\0b").ref).summary == (
        "2 and 2 bytes; they first differ at byte 1"
    )
    assert "line end" in diff_contents(store.objects, put(b"a").ref, put(b"a\n").ref).unified()
    big = b"x" * (MAX_BYTES + 1)
    summary = diff_contents(store.objects, put(big).ref, put(big + b"y").ref).summary
    assert summary.endswith(f"at byte {len(big):,}")
    assert "missing" in diff_contents(store.objects, put(b"a").ref, "sha256:" + "0" * 64).summary
    assert diff_contents(store.objects, "", put(b"a\n").ref).unified() == "@@ -0,0 +1 @@\n+a"


CALLS = st.lists(
    st.sampled_from([f"{t}:{p}>{o}" for t in "xy" for p in "12" for o in "ab"]), max_size=9
)


@given(CALLS, CALLS)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_there_is_drift_exactly_if_the_steps_differ(
    store: Store, manifest: Manifest, a: list[str], b: list[str]
) -> None:
    found = drifts(store, manifest, a, b)
    assert bool(found) == (a != b)
    # Never more entries than leaving out everything and putting in everything would be,
    # and the same, turned round, from the other side.
    assert len(found) <= len(a) + len(b)
    turned = drifts(store, manifest, b, a)
    assert sum(d.type == "tool_drift" for d in found) >= abs(len(a) - len(b))
    assert bool(turned) == bool(found)
    added = sum("was added" in d.description for d in found)
    removed = sum("was removed" in d.description for d in found)
    assert added - removed == len(b) - len(a)


def test_sidecars_of_an_earlier_pack_are_no_drift(store: Store, manifest: Manifest) -> None:
    sidecar = to_bytes(Sidecar("sha256:" + "c" * 64))
    contents = {"out.ctx.json": sidecar, "mine.ctx.json": b"{}", "other.json": sidecar}
    more = tuple(
        Input(name, one.ref, one.size)
        for name, data in contents.items()
        for one in [store.objects.write(data)]
    )
    a, b = Pack("sha256:" + "a" * 64, manifest), Pack("sha256:" + "b" * 64, manifest)
    b = b._replace(manifest=manifest._replace(inputs=(*manifest.inputs, *more)))
    found = compare(store.objects, a, b).entries
    assert [one.description for one in found] == [
        "input mine.ctx.json was added", "input other.json was added",
    ]  # fmt: skip
