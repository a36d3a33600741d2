"""Reports of coding agents become sessions, prompts and entries, in whatever order they come."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from substrate.errors import NotFoundError, RefusedError
from substrate.history.maintenance import forget
from substrate.history.query import Scope, resolve, scopes
from substrate.history.record import agent_sessions, prompts, record_entry, sessions
from substrate.history.record.agent_sessions import AgentSession
from substrate.history.record.prompts import Prompt
from substrate.history.reversal.restore import Outcome
from substrate.history.reversal.undo import Choice
from substrate.history.store import Entry, HistoryStore
from substrate.model import ForgetRule
from substrate.recorder import queries, reversals
from substrate.recorder.agent_events import take_report
from substrate.system import clock, environment
from tests.hook_reports import Claude, Codex, Gemini, Report, encoded
from tests.unit.history.workbench import Bench

Tell = Callable[..., None]


def page(one: str = "one", two: str = "two", three: str = "three", *, end: str = "") -> bytes:
    """a.txt: lines far enough from each other to be merged."""
    return f"{one}\n.\n..\n{two}\n...\n....\n{three}\n.....\n......\n{end}".encode()


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    made = Bench(tmp_path / "project")
    made.outside({"a.txt": page(), "b.txt": b"b\n"})
    made.settle()
    return made


@pytest.fixture
def tell(bench: Bench) -> Tell:
    def told(who: Claude | Codex | Gemini, *reports: Report) -> None:
        for report in reports:
            take_report(environment.current(), who.agent, encoded(report))

    return told


def newest(bench: Bench) -> Entry:
    return bench.log()[0]


def only_prompt(bench: Bench) -> Prompt:
    with bench.store() as store:
        return prompts.latest(store.ledger)


def session_of(bench: Bench, who: Claude | Codex | Gemini, subagent: str = "") -> str:
    with bench.store() as store:
        found = agent_sessions.find(store.ledger, AgentSession(who.agent, who.session, subagent))
    assert found is not None
    return found


def edit(bench: Bench, claude: Claude, call: str, old: str, new: str) -> Report:
    """The tool edits a.txt; the report of it."""
    path = bench.root / "a.txt"
    original = path.read_text()
    path.write_text(original.replace(old, new, 1))
    return claude.edit(path, call, old, new, original)


def test_an_edit_belongs_to_session_prompt_and_call(bench: Bench, tell: Tell) -> None:
    claude = Claude(bench.root)
    tell(claude, claude.start(), claude.prompt("change two"))
    tell(claude, edit(bench, claude, "toolu_1", "two", "TWO"))
    entry = newest(bench)
    assert (entry.kind, entry.command, entry.changed_files) == ("edit", "Edit a.txt", 1)
    assert entry.session_id == session_of(bench, claude)
    assert entry.detail["tool"] == {"name": "Edit", "call_id": "toolu_1"}
    assert entry.detail["model"] == "claude-sonnet-4-5"
    assert entry.detail["recorded_by"] == "observed"
    prompt = only_prompt(bench)
    assert entry.detail["prompt_id"] == prompt.prompt_id
    assert (prompt.text, prompt.model) == ("change two", "claude-sonnet-4-5")
    assert bench.fsck() == []


def test_secrets_of_a_prompt_are_not_recorded(bench: Bench, tell: Tell) -> None:
    claude = Claude(bench.root)
    tell(claude, claude.prompt("use TOKEN=ghp_0123456789012345678901234567890123ab please"))
    assert only_prompt(bench).text == "use TOKEN=[redacted] please"
    trace = environment.current().trace_path.read_text()
    assert "ghp_" not in trace
    assert json.loads(trace.splitlines()[-1])["event_type"] == "prompt"


def test_an_outside_edit_before_and_one_after_stay_external(bench: Bench, tell: Tell) -> None:
    claude = Claude(bench.root)
    tell(claude, claude.prompt("change two"))
    bench.outside({"a.txt": b"zero\n" + page()})
    report = edit(bench, claude, "toolu_1", "two", "TWO")
    bench.outside({"a.txt": b"zero\n" + page(two="TWO", end="four\n")})
    tell(claude, report)
    bench.settle()
    assert bench.kinds() == ["baseline", "external", "edit", "external"]
    with bench.store() as store:
        lines = queries.blame(store, bench.place().rel_path("a.txt"), None)
    kinds = [line.author.kind for line in lines if line.author]
    assert kinds == [
        "external", *["baseline"] * 3, "command", *["baseline"] * 5, "external",
    ]  # fmt: skip


def test_a_scan_that_was_faster_does_not_take_the_edit(bench: Bench, tell: Tell) -> None:
    claude = Claude(bench.root)
    report = edit(bench, claude, "toolu_1", "two", "TWO")
    bench.settle()
    tell(claude, report)
    assert bench.kinds() == ["baseline", "edit"]
    assert newest(bench).session_id == session_of(bench, claude)
    assert bench.fsck() == []
    bench.undo()
    assert bench.read("a.txt") == page()


def test_the_watcher_waits_for_a_tool_that_was_announced(bench: Bench, tell: Tell) -> None:
    from substrate.history.record import watched_edits

    claude = Claude(bench.root)
    path = bench.root / "a.txt"
    tell(claude, claude.edit_call(path, "toolu_1", "two", "TWO"))
    report = edit(bench, claude, "toolu_1", "two", "TWO")
    bench.outside({"b.txt": b"else\n"})
    suspects = {bench.place().rel_path(name): True for name in ("a.txt", "b.txt")}
    with bench.writing() as store:
        assert not watched_edits.record_suspects(store, suspects)
    assert bench.kinds() == ["baseline", "external"]
    tell(claude, report)
    assert bench.kinds() == ["baseline", "external", "edit"]
    with bench.writing() as store:
        assert watched_edits.record_suspects(store, suspects)


def test_a_late_announcement_takes_nothing(
    bench: Bench, tell: Tell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The daemon was slow: the tool has written before its announcement is served."""
    claude = Claude(bench.root)
    monkeypatch.setenv("SUBSTRATE_HOOK_NS", str(clock.now_ns()))
    call = claude.edit_call(bench.root / "a.txt", "toolu_1", "two", "TWO")
    report = edit(bench, claude, "toolu_1", "two", "TWO")
    tell(claude, call, report)
    assert bench.kinds() == ["baseline", "edit"]


def test_a_prompt_that_is_reported_after_its_first_edit(
    bench: Bench, tell: Tell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The daemon was starting: the order is that of the hooks."""
    gemini = Gemini(bench.root)
    asked_ns = clock.now_ns()
    (bench.root / "a.txt").write_bytes(page(two="TWO"))
    tell(gemini, gemini.replace(bench.root / "a.txt", "two", "TWO", page().decode()))
    monkeypatch.setenv("SUBSTRATE_HOOK_NS", str(asked_ns))
    tell(gemini, gemini.report("BeforeAgent", prompt="change two"))
    prompt = only_prompt(bench)
    assert prompt.started_ns == asked_ns
    assert newest(bench).detail["prompt_id"] == prompt.prompt_id
    back(bench, prompt.prompt_id)
    assert bench.read("a.txt") == page()


def test_prompts_are_in_the_order_of_their_hooks(
    bench: Bench, tell: Tell, monkeypatch: pytest.MonkeyPatch
) -> None:
    claude = Claude(bench.root)
    first, second, stop = claude.prompt("first"), claude.prompt("second"), claude.stop()
    for name, report in (("300", second), ("100", first), ("200", stop)):
        monkeypatch.setenv("SUBSTRATE_HOOK_NS", name)
        tell(claude, report)
    found = [(one.text, one.started_ns, one.ended_ns) for one in by_age(bench)]
    assert found == [("first", 100, 300), ("second", 300, None)]


def test_a_scan_between_a_command_and_its_announcement_takes_nothing(
    bench: Bench, tell: Tell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A daemon that is starting scans the tree before the report of the command is served."""
    codex = Codex(bench.root)
    data = bench.read("a.txt")
    assert data is not None
    call = encoded(codex.shell("PreToolUse", "call_1", "rm a.txt"))
    monkeypatch.setenv("SUBSTRATE_HOOK_NS", str(clock.now_ns()))
    (bench.root / "a.txt").unlink()
    bench.settle()
    before = b"\0a.txt\x00644\0%d\0" % len(data) + data  # as the compiled client adds it
    take_report(environment.current(), "codex", call + before)
    monkeypatch.delenv("SUBSTRATE_HOOK_NS")
    tell(codex, codex.shell("PostToolUse", "call_1", "rm a.txt"))
    assert (newest(bench).kind, newest(bench).changed_files) == ("command", 1)
    bench.undo()
    assert bench.read("a.txt") == data


def test_undo_of_a_prompt_takes_its_own_work_and_keeps_the_rest(bench: Bench, tell: Tell) -> None:
    claude = Claude(bench.root)
    tell(claude, claude.prompt("change two"), edit(bench, claude, "t1", "two", "TWO"))
    own = session_of(bench, claude)
    with bench.writing() as store:
        about: dict[str, object] = {"prompt_id": only_prompt(bench).prompt_id}
        running = record_entry.begin(
            store, session=own, agent_id="claude-code", command="make", exact="make"
        )._replace(about=about)
    bench.outside({"made.txt": b"made\n"})
    with bench.writing() as store:
        record_entry.finish(store, running, record_entry.Result(0, 1, {}))
    tell(claude, claude.stop(), claude.prompt("change three"))
    tell(claude, edit(bench, claude, "t2", "three", "THREE"))
    bench.outside({"a.txt": bench.read("a.txt") + b"typed\n"})

    first = by_age(bench)[0]
    back(bench, first.prompt_id)
    assert bench.read("a.txt") == page(three="THREE", end="typed\n")
    assert not (bench.root / "made.txt").exists()
    with pytest.raises(RefusedError, match="already undone"):
        back(bench, first.prompt_id)
    bench.redo(session=own)
    assert bench.read("a.txt") == page(two="TWO", three="THREE", end="typed\n")
    assert (bench.root / "made.txt").exists()
    back(bench, None)  # the newest prompt
    assert bench.read("a.txt") == page(two="TWO", end="typed\n")


def by_age(bench: Bench) -> list[Prompt]:
    with bench.store() as store:
        return sorted(prompts.prefixed(store.ledger, "p-"), key=lambda one: one.started_ns)


def back(bench: Bench, prompt_id: str | None) -> Outcome:
    place = bench.place()

    def find(store: HistoryStore) -> Scope:
        return scopes.of_prompt(store, reversals.prompt_named(place, store, prompt_id))

    return reversals.undo_scope(place, find, Choice())


def test_the_diff_of_a_prompt_leaves_out_what_others_did_between(bench: Bench, tell: Tell) -> None:
    claude = Claude(bench.root)
    tell(claude, claude.prompt("twice"), edit(bench, claude, "t1", "one", "ONE"))
    bench.outside({"a.txt": bench.read("a.txt") + b"typed\n", "b.txt": b"typed\n"})
    bench.settle()
    tell(claude, edit(bench, claude, "t2", "three", "THREE"))
    with bench.store() as store, store.rehearsing("diff"):
        found = queries.scope_diff(store, scopes.of_prompt(store, only_prompt(bench)), ())
        assert found is not None
        text = store.git.diff_text(found.old_tree, found.new_tree)
    assert [change.path for change in found.files] == [b"a.txt"]
    changed = [line for line in text.splitlines() if line[:1] in (b"+", b"-")]
    assert changed[2:] == [b"-one", b"+ONE", b"-three", b"+THREE"]


def test_rollback_to_a_prompt_goes_to_when_it_was_sent(bench: Bench, tell: Tell) -> None:
    claude = Claude(bench.root)
    tell(claude, claude.prompt("first"), edit(bench, claude, "t1", "one", "ONE"))
    tell(claude, claude.stop(), claude.prompt("second"), edit(bench, claude, "t2", "two", "TWO"))
    tell(claude, claude.stop(), claude.prompt("third"), edit(bench, claude, "t3", "three", "3"))
    second = by_age(bench)[1].prompt_id
    place = bench.place()
    reversals.roll_back(place, Choice(), to=second)
    assert bench.read("a.txt") == page("ONE", "TWO")
    reversals.roll_back(place, Choice(), prompt=second)
    assert bench.read("a.txt") == page("ONE")


def test_sessions_continue_and_sub_agents_are_children(bench: Bench, tell: Tell) -> None:
    one, two = Claude(bench.root, "session-1"), Claude(bench.root, "session-2")
    tell(one, one.start())
    tell(two, two.start())
    assert session_of(bench, one) != session_of(bench, two)
    known = session_of(bench, one)
    tell(one, one.end(), one.start("resume"), one.prompt("go on"))
    assert session_of(bench, one) == known
    helper = edit(bench, one, "t1", "two", "TWO") | {"agent_id": "sub-1", "agent_type": "Explore"}
    tell(one, helper)
    child = session_of(bench, one, "sub-1")
    entry = newest(bench)
    assert entry.session_id == child
    assert entry.detail["subagent"] == {"id": "sub-1", "type": "Explore"}
    with bench.store() as store:
        assert agent_sessions.parent_of(store.ledger, child) == known
        prompt = only_prompt(bench)
        assert entry.detail["prompt_id"] == prompt.prompt_id
        assert sessions.resolve(store.ledger, "session-1").session_id == known
    reversals.undo_command(bench.place(), known, Choice())
    assert bench.read("a.txt") == page()


def test_a_prompt_that_was_never_reported_is_known_by_its_calls(bench: Bench, tell: Tell) -> None:
    claude = Claude(bench.root)
    tell(claude, edit(bench, claude, "t1", "two", "TWO"))
    prompt = only_prompt(bench)
    assert (prompt.text, prompt.agent_prompt) == ("", f"{claude.session[:4]}-0")
    report = claude.report("UserPromptSubmit", prompt="it comes late")
    tell(claude, report)
    assert only_prompt(bench) == prompt._replace(text="it comes late")


def test_reports_that_come_twice_or_after_the_end(bench: Bench, tell: Tell) -> None:
    claude = Claude(bench.root)
    tell(claude, claude.prompt("change two"))
    report = edit(bench, claude, "t1", "two", "TWO")
    tell(claude, claude.stop(), claude.end(), claude.end(), claude.stop(), report, report)
    assert bench.kinds() == ["baseline", "edit"]
    assert newest(bench).detail["prompt_id"] == only_prompt(bench).prompt_id


def test_the_second_of_two_reports_is_served_first(bench: Bench, tell: Tell) -> None:
    claude = Claude(bench.root)
    first = edit(bench, claude, "t1", "one", "ONE")
    second = edit(bench, claude, "t2", "three", "THREE")
    tell(claude, second, first)
    bench.settle()
    with bench.store() as store:
        lines = queries.blame(store, bench.place().rel_path("a.txt"), None)
    kinds = [line.author.kind for line in lines if line.author]
    assert [n for n, kind in enumerate(kinds) if kind == "command"] == [0, 6]


def test_a_failed_call_records_nothing(bench: Bench, tell: Tell) -> None:
    claude = Claude(bench.root)
    path = bench.root / "a.txt"
    call = claude.edit_call(path, "t1", "two", "TWO")
    tell(claude, call, call | {"hook_event_name": "PostToolUseFailure"})
    bench.outside({"a.txt": b"typed\n"})
    bench.settle()
    assert bench.kinds() == ["baseline", "external"]


def test_files_that_history_leaves_out_or_does_not_own(bench: Bench, tell: Tell) -> None:
    claude = Claude(bench.root)
    for name in ("node_modules/x.js", ".git/config", "../beside.txt"):
        path = bench.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("new\n")
        tell(claude, claude.write(path, f"t-{name}", "new\n", None))
    assert [entry for entry in bench.log() if entry.commit and entry.kind == "edit"] == []


def test_a_new_file_in_a_new_directory(bench: Bench, tell: Tell) -> None:
    claude = Claude(bench.root)
    path = bench.root / "deep" / "er" / "new.txt"
    tell(claude, claude.before("Write", "t1", file_path=str(path), content="new\n"))
    path.parent.mkdir(parents=True)
    path.write_text("new\n")
    tell(claude, claude.write(path, "t1", "new\n", None))
    assert bench.settle() is None
    bench.undo()
    assert not (bench.root / "deep").exists()


def test_where_no_history_is_nothing_begins(tmp_path: Path) -> None:
    (tmp_path / "plain").mkdir()
    claude = Claude(tmp_path / "plain")
    assert not take_report(environment.current(), claude.agent, encoded(claude.start()))
    assert list((tmp_path / "plain").iterdir()) == []


def test_a_patch_of_codex(bench: Bench, tell: Tell) -> None:
    codex = Codex(bench.root)
    patch = (
        "*** Begin Patch\n*** Update File: a.txt\n@@\n-two\n+TWO\n*** Add File: c.txt\n+new\n"
        "*** Delete File: b.txt\n*** End Patch"
    )
    tell(codex, codex.prompt("patch"), codex.patch("PreToolUse", "call_1", patch))
    bench.outside({"a.txt": page(two="TWO", end="typed\n"), "c.txt": b"new\n", "b.txt": None})
    tell(codex, codex.patch("PostToolUse", "call_1", patch))
    entry = newest(bench)
    assert (entry.kind, entry.changed_files) == ("edit", 3)
    assert entry.detail["model"] == "gpt-5-codex"
    bench.undo()
    assert bench.read("a.txt") == page(end="typed\n")
    assert bench.read("b.txt") == b"b\n"


def test_a_report_that_does_not_fit_is_uncertain_and_stays(bench: Bench, tell: Tell) -> None:
    codex = Codex(bench.root)
    patch = "*** Begin Patch\n*** Update File: a.txt\n@@\n-no such line\n+TWO\n*** End Patch"
    bench.outside({"a.txt": b"else\n"})
    tell(codex, codex.patch("PostToolUse", "call_1", patch))
    assert bench.kinds() == ["baseline", "edit", "external"]
    external, entry = bench.log()[:2]
    assert entry.detail["uncertain"] == ["a.txt"]
    assert external.detail["perhaps_of"] == entry.command_id
    with pytest.raises(NotFoundError):
        bench.undo()
    assert bench.read("a.txt") == b"else\n"


def test_calls_of_gemini_are_paired_in_order(bench: Bench, tell: Tell) -> None:
    gemini = Gemini(bench.root)
    asked = gemini.report("BeforeAgent", prompt="two files")
    paths = [bench.root / name for name in ("x.txt", "y.txt")]
    tell(gemini, asked, *(gemini.write(path, "new\n", "BeforeTool") for path in paths))
    for path in paths:
        path.write_text("new\n")
        tell(gemini, gemini.write(path, "new\n"))
    assert bench.kinds() == ["baseline", "edit", "edit"]
    with bench.store() as store:
        rows = store.ledger.db.execute("SELECT count(*) FROM tool_calls").fetchone()
    assert rows[0] == 0


def test_a_report_of_gemini_that_comes_twice_is_recorded_once(bench: Bench, tell: Tell) -> None:
    """The hook is in the user's and in the project's settings."""
    gemini = Gemini(bench.root)
    path = bench.root / "x.txt"
    before, after = gemini.write(path, "new\n", "BeforeTool"), gemini.write(path, "new\n")
    tell(gemini, before, before)
    path.write_text("new\n")
    tell(gemini, after, after)
    assert bench.kinds() == ["baseline", "edit"]
    shell = [gemini.shell(name, "make") for name in ("BeforeTool", "AfterTool")]
    tell(gemini, shell[0], shell[0])
    bench.outside({"made.txt": b"made\n"})
    tell(gemini, shell[1])
    with bench.store() as store:
        rows = store.ledger.db.execute("SELECT count(*) FROM tool_calls").fetchone()
    assert rows[0] == 0
    assert bench.kinds() == ["baseline", "edit", "command"]


def test_both_paths_of_a_moved_file_belong_to_the_edit(bench: Bench, tell: Tell) -> None:
    """What is typed into the file at its new place, right after the patch, does not."""
    codex = Codex(bench.root)
    patch = (
        "*** Begin Patch\n*** Update File: a.txt\n*** Move to: c.txt\n@@\n-two\n+TWO\n*** End Patch"
    )
    tell(codex, codex.prompt("move it"), codex.patch("PreToolUse", "call_1", patch))
    (bench.root / "a.txt").unlink()
    bench.outside({"c.txt": page(two="TWO", end="typed\n")})
    tell(codex, codex.patch("PostToolUse", "call_1", patch))
    bench.settle()
    external, entry = bench.log()[:2]
    assert (entry.kind, entry.changed_files) == ("edit", 2)
    assert (external.kind, external.changed_files) == ("external", 1)
    with bench.store() as store:
        lines = queries.blame(store, bench.place().rel_path("c.txt"), None)
    kinds = [line.author.kind for line in lines if line.author]
    assert kinds == [*["baseline"] * 3, "command", *["baseline"] * 5, "external"]


def test_an_observed_command_has_what_changed_between_its_hooks(bench: Bench, tell: Tell) -> None:
    codex = Codex(bench.root)
    bench.outside({"before.txt": b"typed\n"})
    tell(codex, codex.prompt("run"), codex.shell("PreToolUse", "call_1", "make TOKEN=s3cr3tvalue"))
    bench.outside({"made.txt": b"made\n"})
    tell(codex, codex.shell("PostToolUse", "call_1", "make TOKEN=s3cr3tvalue"))
    entry = newest(bench)
    assert (entry.kind, entry.command) == ("command", "make TOKEN=[redacted]")
    assert entry.detail["recorded_by"] == "observed"
    assert bench.kinds() == ["baseline", "external", "command"]
    back(bench, None)
    assert not (bench.root / "made.txt").exists()
    assert (bench.root / "before.txt").exists()


def test_what_others_wrote_while_it_ran_is_uncertain(bench: Bench, tell: Tell) -> None:
    codex, claude = Codex(bench.root), Claude(bench.root)
    tell(codex, codex.prompt("run"), codex.shell("PreToolUse", "call_1", "make"))
    tell(claude, edit(bench, claude, "t1", "two", "TWO"))
    bench.outside({"a.txt": bench.read("a.txt") + b"more\n", "made.txt": b"made\n"})
    tell(codex, codex.shell("PostToolUse", "call_1", "make"))
    entry = next(e for e in bench.log() if e.kind == "command")
    assert entry.detail["uncertain"] == ["a.txt"]
    outcome = back(bench, by_age(bench)[0].prompt_id)
    assert bench.read("a.txt") == page(two="TWO", end="more\n")
    assert not (bench.root / "made.txt").exists()
    assert any("a.txt" in note for note in outcome.notes)


def test_a_file_that_a_person_is_typing_in_is_uncertain(bench: Bench, tell: Tell) -> None:
    codex = Codex(bench.root)
    tell(codex, codex.prompt("run"))
    bench.outside({"b.txt": b"typed\n"})  # the command names it
    for number in range(3):
        bench.outside({"a.txt": page(end=f"typed {number}\n")})
        ran = [codex.shell(name, f"c{number}", "make b.txt") for name in _BOTH]
        tell(codex, ran[0])
        bench.outside({"a.txt": page(end=f"typed {number}.\n"), "b.txt": b"made %d\n" % number})
        bench.outside({f"made-{number}.txt": b"made\n"})
        tell(codex, ran[1])
        entry = next(e for e in bench.log() if e.kind == "command")
        assert entry.detail["uncertain"] == ["a.txt"]
    back(bench, None)
    assert bench.read("a.txt") == page(end="typed 2.\n")
    assert bench.read("b.txt") == b"typed\n"
    assert not list(bench.root.glob("made-*"))


_BOTH = ("PreToolUse", "PostToolUse")


def test_a_file_that_is_open_in_an_editor_is_uncertain(bench: Bench, tell: Tell) -> None:
    codex = Codex(bench.root)
    (bench.root / ".a.txt.swp").write_bytes(b"vim")
    tell(codex, codex.prompt("run"), codex.shell("PreToolUse", "call_1", "make"))
    bench.outside({"a.txt": b"saved\n", "made.txt": b"made\n"})
    tell(codex, codex.shell("PostToolUse", "call_1", "make"))
    back(bench, None)
    assert bench.read("a.txt") == b"saved\n"
    assert not (bench.root / "made.txt").exists()


def test_what_is_written_after_the_command_ended_is_not_its_own(
    bench: Bench, tell: Tell, monkeypatch: pytest.MonkeyPatch
) -> None:
    codex = Codex(bench.root)
    tell(codex, codex.prompt("run"), codex.shell("PreToolUse", "call_1", "make"))
    bench.outside({"made.txt": b"made\n"})
    time.sleep(0.02)  # files' times are those of the last tick
    monkeypatch.setenv("SUBSTRATE_HOOK_NS", str(clock.now_ns()))
    time.sleep(0.02)
    bench.outside({"typed.txt": b"typed\n"})
    tell(codex, codex.shell("PostToolUse", "call_1", "make"))
    entry = next(e for e in bench.log() if e.kind == "command")
    assert entry.detail["uncertain"] == ["typed.txt"]
    assert entry.changed_files == 1


def test_ids_of_prompts_resolve_by_prefix_too(bench: Bench, tell: Tell) -> None:
    claude = Claude(bench.root)
    tell(claude, claude.prompt("change two"), edit(bench, claude, "t1", "two", "TWO"))
    prompt = only_prompt(bench)
    with bench.store() as store:
        for text in (prompt.prompt_id, prompt.prompt_id[:-2]):
            assert resolve(store, text).prompt == prompt
        entry = resolve(store, "@", session_of(bench, claude)).entry
    assert entry is not None
    assert entry.kind == "edit"
    bench.undo(prompt.prompt_id)
    assert bench.read("a.txt") == page()


def test_a_prompt_survives_compaction_and_is_then_refused(bench: Bench, tell: Tell) -> None:
    claude = Claude(bench.root)
    tell(claude, claude.prompt("change two"), edit(bench, claude, "t1", "two", "TWO"))
    tell(claude, claude.stop(), edit(bench, claude, "t2", "three", "THREE"))
    prompt = by_age(bench)[0]
    bench.close(session_of(bench, claude))
    for number in range(3):
        bench.run({"b.txt": b"%d\n" % number}, session=f"s-{number}")
        bench.close(f"s-{number}")
    bench.compact(checkpoints=0, sessions=0)
    with bench.store() as store:
        assert resolve(store, prompt.prompt_id).prompt == prompt
        assert store.ledger.of_prompt(prompt.prompt_id)[0].squashed_into is not None
    with pytest.raises(RefusedError, match="no longer kept on their own"):
        back(bench, prompt.prompt_id)


def test_a_secret_in_a_prompt_can_be_forgotten(bench: Bench, tell: Tell) -> None:
    claude = Claude(bench.root)
    tell(claude, claude.prompt("say hunter2-xyzzy"))
    with bench.writing() as store:
        forget.forget(store, ForgetRule(secret="hunter2-xyzzy"))
    assert only_prompt(bench).text == "say [forgotten]"


def test_a_secret_in_what_an_agent_is_called_can_be_forgotten(bench: Bench, tell: Tell) -> None:
    secret = "hunter2-xyzzy"
    codex = Codex(bench.root, session=f"of-{secret}")
    tell(codex, {**codex.prompt("go"), "model": f"model-{secret}", "turn_id": secret})
    tell(codex, codex.shell("PreToolUse", f"call-{secret}", "make"))
    with bench.writing() as store:
        forget.forget(store, ForgetRule(secret=secret))
    for file in (bench.root / ".substrate-git" / "index").iterdir():
        assert secret.encode() not in file.read_bytes(), file


@pytest.mark.parametrize(
    "whose",
    [AgentSession("gemini-cli"), AgentSession("gemini-cli", "b0b9b1a2", call_id="call_1")],
    ids=["its latest session", "its named session"],
)
def test_a_command_belongs_to_its_agents_session_and_open_prompt(
    bench: Bench, tell: Tell, whose: AgentSession
) -> None:
    gemini = Gemini(bench.root)
    tell(gemini, gemini.report("SessionStart", source="startup"))
    tell(gemini, gemini.report("BeforeAgent", prompt="run it"))
    for ended in (False, True):
        with bench.writing() as store:
            running = record_entry.begin(
                store, session=whose, agent_id="gemini-cli", command="true", exact="true"
            )
            entry = record_entry.finish(store, running, record_entry.Result(0, 1, {})).entry
        assert entry.session_id == session_of(bench, gemini)
        wanted = None if ended else only_prompt(bench).prompt_id
        assert entry.detail.get("prompt_id") == wanted
        assert ("tool" in entry.detail) == bool(whose.call_id)
        tell(gemini, gemini.report("AfterAgent"))


def test_a_command_of_an_agent_that_reports_nothing(bench: Bench) -> None:
    """Without hooks: an id of its own makes a session, no id leaves the automatic one."""
    found = []
    for whose in (
        AgentSession("claude-code", "one"), AgentSession("claude-code", "two"),
        AgentSession("claude-code", "one"), AgentSession("gemini-cli"), None,
    ):  # fmt: skip
        with bench.writing() as store:
            running = record_entry.begin(
                store, session=whose, agent_id="x", command="true", exact="true"
            )
            record_entry.finish(store, running, record_entry.Result(0, 1, {}))
        found.append(running.session_id)
    one, two, again, latest, plain = found
    assert one == again != two
    assert latest == plain
    assert latest not in (one, two)
