from __future__ import annotations

import pytest

from substrate.errors import NotFoundError, UsageError
from substrate.history.query.line_blame import BlamedLine, blame
from substrate.model.paths import RelPath
from tests.unit.history.workbench import Bench, Link


def lines(bench: Bench, name: str, part: tuple[int, int] | None = None) -> list[BlamedLine]:
    bench.settle()
    with bench.store() as store:
        return blame(store, RelPath(name.encode()), part)


def who(bench: Bench, name: str) -> list[str]:
    return [line.entry.command_id if line.entry else "-" for line in lines(bench, name)]


def test_each_line_names_its_entry(bench: Bench) -> None:
    bench.outside({"a": b"base\nbase\n"})
    one = bench.run({"a": b"base\none\nbase\n"}, session="s", agent="ada")
    bench.outside({"a": b"base\none\nbase\nmine\n"})
    found = lines(bench, "a")
    kinds = [line.entry.kind if line.entry else "" for line in found]
    assert kinds == ["baseline", "command", "baseline", "external"]
    assert [line.text for line in found] == [b"base", b"one", b"base", b"mine"]
    assert [line.number for line in found] == [1, 2, 3, 4]
    assert found[1].entry is not None
    assert (found[1].entry.command_id, found[1].entry.agent_id) == (one.command_id, "ada")


def test_an_undo_gives_the_line_back_to_its_author(bench: Bench) -> None:
    bench.outside({"a": b"x\n"})
    one = bench.run({"a": b"x\none\n"})
    bench.run({"a": b"x\n"})
    bench.undo()
    found = who(bench, "a")
    assert len(found) == 2
    assert one.command_id not in (found[0],)


def test_part_of_a_file(bench: Bench) -> None:
    bench.run({"a": b"1\n2\n3\n4"})
    assert [line.text for line in lines(bench, "a", (2, 3))] == [b"2", b"3"]
    assert [line.text for line in lines(bench, "a", (4, 4))] == [b"4"]


def test_after_compaction_the_squash_is_named(bench: Bench) -> None:
    for n in range(3):
        bench.run({"a": b"".join(b"%d\n" % m for m in range(n + 1))}, session="s")
    bench.close("s")
    bench.run({"z": b"1"}, session="later")
    bench.compact(sessions=1)
    [holder] = [e.command_id for e in bench.log() if e.kind == "squash"]
    assert set(who(bench, "a")) == {holder}


@pytest.mark.parametrize("part", [(0, 1), (3, 2), (1, 9)])
def test_lines_that_are_not_there(bench: Bench, part: tuple[int, int]) -> None:
    bench.run({"a": b"1\n2\n"})
    with pytest.raises(UsageError, match="the file has 2 lines"):
        lines(bench, "a", part)


def test_what_is_no_file(bench: Bench) -> None:
    bench.run({"d/x": b"1", "l": Link("d/x")})
    for name in ("d", "l", "nothing", "d/x/y"):
        with pytest.raises(NotFoundError):
            lines(bench, name)
    with pytest.raises(NotFoundError, match="d is a directory"):
        lines(bench, "d")


def test_an_empty_file_has_no_lines(bench: Bench) -> None:
    bench.run({"a": b""})
    assert lines(bench, "a") == []


def test_odd_names_and_contents(bench: Bench) -> None:
    for name in ("-L1", "a\nb", ":(top)x", "é", "*"):
        one = bench.run({name: b"\x1b[31mred\nplain \xff\n"})
        found = lines(bench, name)
        assert [line.text for line in found] == [b"\x1b[31mred", b"plain \xff"]
        assert found[0].entry is not None
        assert found[0].entry.command_id == one.command_id
