"""The interactive shell in its world: a view for each line, and jobs that keep theirs."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.capabilities import present
from tests.contract.as_user import NOBODY
from tests.daemons import is_in_foreground, until
from tests.shell_terminal import PROMPT, RC, Terminal

pytestmark = pytest.mark.needs("world-overlay")

Open = Callable[..., Terminal]


class Site:
    """A project, a home, and terminals of one user in it."""

    def __init__(self, base: Path, uid: int | None) -> None:
        self.base = base
        self.uid = uid
        self.home = base / "home"
        self.project = base / "project"
        self.opened: list[Terminal] = []
        for path in (self.home, self.project, self.home / ".substrate"):
            path.mkdir()
        self.rc(RC)
        self.give(base, *base.rglob("*"))

    def rc(self, text: str) -> None:
        (self.home / ".bashrc").write_text(text)
        self.give(self.home / ".bashrc")

    def give(self, *paths: Path) -> None:
        for path in paths if self.uid is not None else ():
            os.chown(path, self.uid or 0, self.uid or 0)

    def put(self, name: str, text: str) -> Path:
        """As an editor saves: a new file in the place of the old one."""
        path = self.project / name
        fresh = path.with_name(path.name + ".new")
        fresh.write_text(text)
        self.give(fresh)
        fresh.rename(path)
        return path

    def open(self, *words: str, before: tuple[str, ...] = ()) -> Terminal:
        env = {"HOME": str(self.home), "SUBSTRATE_HOME": str(self.home / ".substrate"),
               "PATH": os.environ["PATH"] if self.uid is None else "/usr/bin:/bin"}  # fmt: skip
        made = Terminal(self.project, *words, before=before, uid=self.uid, env=env)
        self.opened.append(made)
        return made

    @property
    def worlds(self) -> list[Path]:
        return list((self.project / ".substrate-git" / "worlds").iterdir())

    def processes(self) -> list[str]:
        """Processes that still work in the project, or have it mounted."""
        found = []
        for pid in os.listdir("/proc"):
            if not pid.isdigit() or int(pid) == os.getpid():
                continue
            with suppress(OSError):
                where = os.readlink(f"/proc/{pid}/cwd")
                mounted = str(self.project) in Path(f"/proc/{pid}/mountinfo").read_text()
                if mounted or where.startswith(str(self.project)):
                    found.append(f"{pid} {Path(f'/proc/{pid}/comm').read_text().strip()}")
        return found


@pytest.fixture(params=[None, NOBODY], ids=["own", "nobody"])
def either(request: pytest.FixtureRequest, private_environment: Path) -> Iterator[Site]:
    yield from site_of(request.param)


@pytest.fixture
def site(private_environment: Path) -> Iterator[Site]:
    yield from site_of(None)


def site_of(uid: int | None) -> Iterator[Site]:
    if uid is not None and not present("other-user"):
        pytest.skip("needs other-user")
    base = Path(tempfile.mkdtemp(prefix="substrate-test-"))
    made = Site(base, uid)
    try:
        yield made
    finally:
        for terminal in made.opened:
            terminal.close()
        shutil.rmtree(base)


def test_a_line_reaches_the_real_files_when_it_is_over(either: Site) -> None:
    terminal = either.open()
    terminal.line("echo one > a")
    terminal.type(b"echo two > b; cat; mkdir d && cd d\r")
    until(lambda: is_in_foreground("cat", str(either.project)))
    assert (either.project / "a").read_text() == "one\n"
    assert not (either.project / "b").exists()
    terminal.type(b"\x04")
    terminal.until(PROMPT)
    assert (either.project / "b").read_text() == "two\n"
    terminal.line("echo three > c; pwd; rm ../a")
    assert terminal.exit("exit 3") == 3
    assert terminal.lines() == [
        ("echo one > a", 0, ["a"]),
        ("echo two > b; cat; mkdir d && cd d", 0, ["b", "d"]),
        ("echo three > c; pwd; rm ../a", 0, ["a", "d/c"]),
        ("exit 3", 3, []),
    ]
    isolation = [one["isolation"] for one in terminal.commands()]
    assert {(one["strategy"], one["tier"]) for one in isolation} == {("overlay", "workspace")}
    assert "not kept" in isolation[0]["reason"]
    assert either.worlds == []
    assert either.processes() == []
    assert list((either.home / ".substrate" / "shells").iterdir()) == []


def test_a_line_whose_change_cannot_arrive_says_so_at_the_prompt(site: Site) -> None:
    site.put("a", "1\n")
    terminal = site.open()
    terminal.type(b"echo theirs > a; cat\r")
    until(lambda: is_in_foreground("cat", str(site.project)))
    site.put("a", "mine\n")
    terminal.type(b"\x04")
    said = terminal.until(PROMPT)
    assert b"substrate: not applied: a (conflict): " in said
    assert b"Apply: substrate recover restore c-" in said
    assert b"status=0" in terminal.line("echo status=$?"), "the line's own status"
    assert (site.project / "a").read_text() == "mine\n"


def test_a_job_in_the_background_keeps_its_view(either: Site) -> None:
    terminal = either.open()
    job = "(until [ -e go ]; do sleep .1; done; env pwd -P > ~/where; echo j > d/../j)"
    assert b"still running in wld_" in terminal.line(f"mkdir d; echo 1 > a; {job} &")
    assert (either.project / "a").exists()
    terminal.line("echo 2 > b")
    assert b"a b d\r\n" in terminal.line("echo *")
    # Its directory leads to the view of its line, which is not that of the lines after it.
    assert b"none" in terminal.line("touch /proc/$!/cwd/go; ls go 2> /dev/null || echo none")
    terminal.line("wait")
    until((either.project / "j").exists)
    assert (either.home / "where").read_text().startswith("/"), "its directory has a path"
    assert terminal.exit() == 0
    assert terminal.changed_by("echo 2 > b") == ["b"]
    [late] = [one for one in terminal.lines() if "j" in one[2]]
    assert late[0].startswith("world apply wld_")
    assert either.worlds == []


def test_a_job_that_writes_by_a_path_from_the_root(site: Site) -> None:
    terminal = site.open()
    terminal.line("(until [ -e $PWD/go ]; do sleep .1; done; echo j > $PWD/j) &")
    terminal.line("touch go; until [ -e j ]; do sleep .1; done")
    assert terminal.exit() == 0
    assert terminal.changed_by("touch go; until [ -e j ]; do sleep .1; done") == ["go", "j"]


def test_edits_outside_are_seen_by_the_next_line(site: Site) -> None:
    """Although the prompt had looked at the file: a view remembers what it looked up."""
    site.put("a", "one\n")
    site.rc(RC + "PROMPT_COMMAND='cat a > /dev/null; ls > /dev/null'\n")
    terminal = site.open()
    assert b"one\r\n" in terminal.line("cat a")
    site.put("a", "two\n")
    site.put("b", "new\n")
    assert b"two\r\nnew\r\n" in terminal.line("cat a b")
    assert terminal.exit() == 0


def test_the_workspaces_own_directory_keeps_its_mode(site: Site) -> None:
    site.project.chmod(0o750)
    terminal = site.open()
    assert b"keeps its mode" in terminal.line("chmod 711 .")
    said = terminal.line("stat -c %a .")
    assert b"750\r\n" in said and b"keeps" not in said
    site.project.chmod(0o755)
    said = terminal.line("stat -c %a .")
    assert b"755\r\n" in said and b"keeps" not in said
    assert terminal.exit() == 0
    assert site.project.stat().st_mode & 0o777 == 0o755


def test_the_same_lines_on_both_sides_are_a_conflict(site: Site) -> None:
    site.put("a", "one\n")
    terminal = site.open()
    terminal.type(b"cat > /dev/null; echo mine > a\r")
    until(lambda: is_in_foreground("cat", str(site.project)))
    site.put("a", "theirs\n")
    terminal.type(b"\x04")
    said = terminal.until(PROMPT)
    assert said.count(b"conflict: a") == 1
    assert said.count(b"\n") <= 3, said
    assert (site.project / "a").read_text() == "theirs\n"
    assert b"theirs" in terminal.line("cat a")
    assert terminal.exit() == 0


def test_a_line_that_is_held_takes_its_directory_along(site: Site) -> None:
    terminal = site.open()
    (site.project / ".substrate-git" / "config.toml").write_text("[world]\nhold_code = true\n")
    said = terminal.line("mkdir d && cd d && echo x > .envrc")
    assert b"not applied" in said
    assert b"d is not there any more" in said
    assert b"here " + bytes(site.project) + b"\r\n" in terminal.line('echo here "$PWD"')
    assert terminal.exit() == 0
    [world] = terminal.json("world", "list")["worlds"]
    assert terminal.substrate("world", "apply", world["world_id"]).returncode == 0
    assert (site.project / "d" / ".envrc").read_text() == "x\n"


def test_what_the_shell_knows_of_directories_stays(site: Site) -> None:
    site.rc(RC + 'cd() { echo mine >&2; builtin cd "$@"; }; CDPATH=/:/usr; ln -s / root\n')
    terminal = site.open()
    terminal.line("mkdir -p x/y; builtin cd x; builtin cd y; echo 1 > f")
    said = terminal.line('echo "$PWD" "$OLDPWD" $(pwd -P) "${DIRSTACK[*]}"')
    here = f"{site.project}/x"
    assert f"{here}/y {here} {here}/y ~".encode() not in said
    assert f"{here}/y {here} {here}/y".encode() in said
    assert b"mine" not in said
    said = terminal.line("rm -r ../../x; echo gone")
    assert b"x/y is not there any more" in said
    assert str(site.project).encode() + b"\r\n" in terminal.line("pwd -P")
    assert terminal.exit() == 0


def test_git_in_the_shell_as_anywhere(either: Site) -> None:
    terminal = either.open()
    terminal.line("git init -q . && git config user.name A && git config user.email a@b")
    terminal.line("echo 1 > a && git add a && git commit -qm one")
    terminal.line("sleep 300 &")
    terminal.line("echo 2 > a && git commit -qam two")
    terminal.line("kill %1")
    terminal.line("wait")
    assert b"two" in terminal.line("git log --oneline | cat")
    assert b"clean" in terminal.line("git status")
    assert terminal.exit() == 0
    outside = subprocess.run(
        ["git", "-c", "safe.directory=*", "log", "--format=%s"], cwd=either.project,
        capture_output=True, check=True,
    )  # fmt: skip
    assert outside.stdout == b"two\none\n"
    assert terminal.json("world", "list")["worlds"] == []
    assert not any(one[0].startswith("world apply") for one in terminal.lines())


EDITOR = """
import curses, sys
def edit(screen):
    text = ""
    while True:
        screen.clear()
        screen.addstr(0, 0, f"EDIT {curses.LINES}:{curses.COLS} {text}")
        screen.refresh()
        key = screen.getch()
        if key == ord("Q"):
            return
        if key == ord("W"):
            open(sys.argv[1], "w").write(text + "\\n")
        elif 0 < key < 128 and chr(key) not in text:
            text += chr(key)
curses.wrapper(edit)
"""


def test_an_editor_its_window_and_ctrl_z(site: Site) -> None:
    (site.base / "editor.py").write_text(EDITOR)
    edit = f"TERM=xterm {sys.executable} {site.base / 'editor.py'}"
    terminal = site.open()
    terminal.resize(30, 90)
    terminal.type(f"{edit} a\r".encode())
    terminal.until(b"EDIT 30:90")
    terminal.press(b"helo", b"o")
    terminal.press(b"WQ", PROMPT)
    assert (site.project / "a").read_text() == "helo\n"
    terminal.type(f"{edit} b\r".encode())
    terminal.until(b"EDIT")
    terminal.press(b"x", b"x")
    terminal.press(b"\x1a", PROMPT)
    terminal.line("echo between > c")
    terminal.type(b"fg\r")
    terminal.until(b"EDIT")
    terminal.press(b"y", b"y")
    terminal.press(b"WQ", PROMPT)
    assert (site.project / "b").read_text() == "xy\n"
    assert b"xy" in terminal.line("cat b")
    assert terminal.exit() == 0
    assert terminal.changed_by(f"{edit} a") == ["a"]
    assert terminal.changed_by("echo between > c") == ["c"]


def test_a_file_that_the_shell_keeps_open(site: Site) -> None:
    terminal = site.open()
    terminal.line("exec 3> log; echo one >&3")
    assert (site.project / "log").read_text() == "one\n"
    terminal.line("echo two >&3")
    terminal.line("exec 3>&-")
    until(lambda: (site.project / "log").read_text() == "one\ntwo\n")
    assert terminal.exit() == 0


def test_the_end_of_bash_is_the_end_of_its_jobs(site: Site) -> None:
    terminal = site.open()
    terminal.line("echo one > a; sleep 300 &")
    last = "echo two > b; sh -c 'echo inner > c; kill -9 $PPID; sleep 300'"
    terminal.type(last.encode() + b"\r")
    assert terminal.process.wait(60) == 128 + signal.SIGKILL
    assert site.processes() == []
    assert (site.project / "c").read_text() == "inner\n"
    assert terminal.changed_by(last) == ["b", "c"]
    assert site.worlds == []


def test_a_closed_window(either: Site) -> None:
    terminal = either.open()
    terminal.type(b"echo one > a; sleep 300\r")
    until(lambda: is_in_foreground("sleep", str(either.project)))
    terminal.hang_up()
    terminal.process.wait(60)
    until(lambda: either.processes() == [])
    assert (either.project / "a").read_text() == "one\n"
    assert terminal.changed_by("echo one > a; sleep 300") == ["a"]
    assert either.worlds == []
    assert list((either.home / ".substrate" / "shells").iterdir()) == []


def test_the_recorder_is_killed_and_nothing_is_lost(either: Site) -> None:
    # Another process leads the session, like a login shell: otherwise the terminal would close.
    terminal = either.open(before=("sh", "-c", '"$@"; printf "ended\\n"; exec sleep 60', "sh"))
    terminal.line("echo one > a; sleep 300 &")
    terminal.type(b"echo two > b; sleep 300\r")
    until(lambda: is_in_foreground("sleep", str(either.project)))
    leader = terminal.process.pid
    [recorder] = Path(f"/proc/{leader}/task/{leader}/children").read_text().split()
    os.kill(int(recorder), signal.SIGKILL)
    terminal.until(b"ended")
    until(lambda: either.processes() == [f"{leader} sleep"])
    states = {one["state"]: one for one in terminal.json("world", "list")["worlds"]}
    assert set(states) == {"crashed", "detached"}
    world = states["crashed"]
    assert terminal.substrate("world", "apply", world["world_id"]).returncode == 0
    assert (either.project / "b").read_text() == "two\n"
    [left] = (either.home / ".substrate" / "shells").iterdir()
    again = either.open()
    assert not left.exists()
    assert again.exit() == 0
    assert either.worlds == []


def test_what_was_written_between_two_lines_is_not_lost(site: Site) -> None:
    site.rc(RC + "PROMPT_COMMAND='echo x >> prompts'\n")
    terminal = site.open(before=("sh", "-c", '"$@"; printf "ended\\n"; exec sleep 60', "sh"))
    terminal.line("true")
    leader = terminal.process.pid
    [recorder] = Path(f"/proc/{leader}/task/{leader}/children").read_text().split()
    os.kill(int(recorder), signal.SIGKILL)
    terminal.until(b"ended")
    [world] = terminal.json("world", "list")["worlds"]
    assert terminal.substrate("world", "apply", world["world_id"]).returncode == 0
    assert (site.project / "prompts").read_text() == "x\nx\n"
    terminal = site.open()
    assert terminal.exit("echo y > y; exec true") == 0
    assert (site.project / "prompts").read_text() == "x\nx\nx\n"
    terminal = site.open()
    terminal.type(b"\x04")
    assert terminal.process.wait(60) == 0
    assert (site.project / "prompts").read_text() == "x\nx\nx\nx\n"


def test_the_view_changer_is_killed_and_nothing_is_lost(site: Site) -> None:
    terminal = site.open()
    terminal.line("echo one > a")
    recorder = terminal.process.pid
    for pid in Path(f"/proc/{recorder}/task/{recorder}/children").read_text().split():
        if "inotify" in str([os.readlink(fd) for fd in Path(f"/proc/{pid}/fd").iterdir()]):
            os.kill(int(pid), signal.SIGKILL)
    said = terminal.line("echo two > b")
    assert b"was ended" in said
    terminal.line("echo three > c")
    terminal.exit()
    terminal.substrate("-c", "true")
    for world in terminal.json("world", "list")["worlds"]:
        assert terminal.substrate("world", "apply", world["world_id"]).returncode == 0
    assert (site.project / "b").read_text() == "two\n"
    assert (site.project / "c").read_text() == "three\n"
    assert site.worlds == []


def test_leaving_with_jobs(site: Site) -> None:
    terminal = site.open()
    terminal.line("(until [ -e ~/go ]; do sleep .1; done; echo late > late) > /dev/null 2>&1 &")
    terminal.type(b"sleep 300\r")
    until(lambda: is_in_foreground("sleep", str(site.project)))
    terminal.type(b"\x1a")
    terminal.until(PROMPT)
    assert b"stopped jobs" in terminal.line("exit")
    assert terminal.exit("exit 0") == 0
    assert [one["state"] for one in terminal.json("world", "list")["worlds"]] == ["detached"]
    (site.home / "go").touch()
    until(lambda: site.processes() == [])
    terminal.substrate("-c", "true")
    assert (site.project / "late").read_text() == "late\n"
    assert site.worlds == []


def test_another_project_is_recorded_where_it_is(site: Site) -> None:
    other = site.base / "other"
    (other / ".git").mkdir(parents=True)
    terminal = site.open()
    terminal.line("echo 1 > a; cd ../other")
    terminal.line("echo 2 > b; echo 3 > ../project/c")
    terminal.line("cd - > /dev/null")
    assert terminal.exit() == 0
    assert (site.project / "c").read_text() == "3\n"
    assert terminal.changed_by("echo 2 > b; echo 3 > ../project/c") == ["c"]
    terminal.cwd = other
    assert terminal.changed_by("echo 2 > b; echo 3 > ../project/c") == ["b"]
    first = terminal.commands()[0]["isolation"]
    assert first["strategy"] == "direct"
    assert "started in" in first["reason"]


def test_a_line_makes_a_history_where_a_command_would(site: Site) -> None:
    places = {name: site.base / name for name in ("plain", "sticky", "home")}
    for place in places.values():
        place.mkdir(exist_ok=True)
    places["sticky"].chmod(0o1777)
    terminal = site.open()
    for name, place in places.items():
        terminal.line(f"cd {place}")
        first, second = terminal.line("echo 1 > by-line"), terminal.line("true")
        by_line = (place / ".substrate-git").exists()
        assert by_line == (name == "plain")
        shutil.rmtree(place / ".substrate-git", ignore_errors=True)
        terminal.cwd = place
        done = terminal.substrate("-c", "true")
        assert (place / ".substrate-git").exists() == by_line, name
        said = b"no history is kept here"
        assert (said in done.stderr, said in first, said in second) == (not by_line,) * 2 + (False,)
    terminal.line("cd ../project")
    assert terminal.exit() == 0


def test_without_a_world(site: Site) -> None:
    terminal = site.open("shell", "--no-world")
    terminal.line("echo 1 > a")
    assert terminal.exit() == 0
    [first, _] = terminal.commands()
    assert first["isolation"]["strategy"] == "direct"
    assert first["isolation"]["reason"].startswith("asked for;")
    assert first["changed_files"] == ["a"]


def test_ctrl_c_again_and_again(site: Site) -> None:
    """At any moment: while a line begins, runs, is recorded, and at the prompt."""
    terminal = site.open()
    for number in range(40):
        terminal.type(f"echo {number} >> a\r".encode())
        terminal.type(b"\x03" * (number % 3))
        time.sleep(number % 7 / 100)
    # bash itself may overlook a Ctrl-C until the next key, and what was typed before it is gone.
    terminal.press(b"\x15echo st''eady\r", b"\nsteady\r\n")
    terminal.type(b"\x15echo last > last\r")
    until((site.project / "last").exists)
    terminal.until(b"last\r\n")
    terminal.until(PROMPT)
    assert terminal.exit() == 0
    text = (site.project / "a").read_text().split() if (site.project / "a").exists() else []
    assert text == sorted(set(text), key=int)
    assert terminal.changed_by("echo last > last") == ["last"]
    assert site.worlds == []


def test_hooks_of_the_prompt_that_are_set_again(site: Site) -> None:
    terminal = site.open()
    terminal.line("PROMPT_COMMAND='true'")
    terminal.line("echo 1 > a")
    terminal.line("echo 2 > b")
    assert (site.project / "b").exists()
    assert terminal.exit() == 0
    assert terminal.changed_by("echo 1 > a") == ["a"]
    assert terminal.changed_by("echo 2 > b") == ["b"]


def test_what_a_line_reaches_over_the_network(site: Site) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]

        def serve() -> None:
            with suppress(OSError):
                server.accept()[0].close()

        threading.Thread(target=serve, daemon=True).start()
        terminal = site.open()
        terminal.line("true")
        terminal.line(f"exec 4<> /dev/tcp/127.0.0.1/{port}; exec 4>&-")
        terminal.line("true")
        assert terminal.exit() == 0
    spans = [one for one in terminal.json("trace")["spans"] if "scopes_used" in one]
    assert [one["scopes_used"] for one in spans] == [[], [f"tcp:127.0.0.1:{port}"], [], []]


def test_old_directories_of_killed_shells_go(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(site.base))
    gone = subprocess.Popen(["true"])
    gone.wait()
    for name, pid in (("dead", gone.pid), ("alive", os.getpid())):
        (site.base / f"substrate-shell-{name}").mkdir()
        (site.base / f"substrate-shell-{name}" / "rc").write_text(f"__substrate_pid={pid}\n")
    assert site.open().exit() == 0
    assert not (site.base / "substrate-shell-dead").exists()
    assert (site.base / "substrate-shell-alive").exists()


def test_a_shell_in_its_world_starts_no_other(site: Site) -> None:
    terminal = site.open()
    said = terminal.line(f"{sys.executable} -m substrate shell; echo status $?")
    assert b"a world already" in said
    assert b"status 5" in said
    assert terminal.exit() == 0


def test_substrate_is_answered_in_lines_and_at_the_prompt(site: Site) -> None:
    program = f"{sys.executable} -m substrate"
    site.rc(RC + f"sub() {{ {program} \"$@\"; }}\nPROMPT_COMMAND='said=$(sub log 2>&1)'\n")
    terminal = site.open()
    terminal.line("echo one > a")
    assert b"echo one > a" in terminal.line('echo "$said"')
    assert b"echo one > a" in terminal.line("sub log")
    said = terminal.line("sub undo; ls a")
    assert b"a\r\n" in said
    assert b"undo of" in said
    assert not (site.project / "a").exists()
    assert b"none" in terminal.line("ls a 2> /dev/null || echo none")
    assert b"within" in terminal.line(f"{program} -c 'echo within | tee b'")
    assert terminal.exit() == 0
    assert (site.project / "b").exists()
    assert site.worlds == []


def test_suspend_completion_and_exec(site: Site) -> None:
    """From an interactive shell, whose job it is."""
    outer = ("bash", "--norc", "--noprofile", "-i", "-c", 'set -m; "$@"; echo stopped; fg', "bash")
    terminal = site.open(before=outer)
    terminal.line("echo text > a_long_name")
    terminal.type(b"suspend\r")
    terminal.until(b"stopped\r\n")
    assert b"two" in terminal.line("echo two | tee b")
    terminal.type(b"cat a_lo\t")
    terminal.until(b"a_long_name")
    assert b"text" in terminal.line("")
    terminal.type(b"sleep 300\r")
    until(lambda: is_in_foreground("sleep", str(site.project)))
    terminal.type(b"\x03")
    terminal.until(PROMPT)
    terminal.type(b"exec sh -c 'echo three > c; cat; echo four > d'\r")
    until(lambda: is_in_foreground("cat", str(site.project)))
    terminal.type(b"\x04")
    assert terminal.process.wait(60) == 0
    assert terminal.changed_by("echo two | tee b") == ["b"]
    assert terminal.lines()[-1][2] == ["c", "d"]
    assert site.processes() == []
