"""Packs as a user meets them, and the original tool's failures, each as a test that passes here."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

CTX = [sys.executable, "-c", "import sys; from substrate.cli.ctx import ctx; sys.exit(ctx())"]

LOG: dict[str, Any] = {
    "model": {"identifier": "claude-opus-4-6", "parameters": {"temperature": 0, "seed": 2**60 + 1}},
    "system_prompt": "Be careful.",
    "prompts": [{"role": "user", "content": "What does main.py do?"}],
    "inputs": [{"name": "main.py", "content": "print('hi')\n"}],
    "steps": [
        {
            "type": "tool_call",
            "tool": "read_file",
            "parameters": {"path": "main.py"},
            "output": "print('hi')\n",
            "timestamp": "2026-02-10T10:00:00Z",
        }
    ],
    "outputs": [{"name": "answer.md", "content": "It greets.\n"}],
    "environment": {"os": "linux", "runtime": "python3.12", "tool_versions": {"ctx": "0.1.0"}},
}


def ctx(where: Path, *words: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*CTX, *words], cwd=where, input=stdin, capture_output=True, text=True, check=False
    )


def said(where: Path, *words: str, stdin: str = "", status: int = 0) -> str:
    done = ctx(where, *words, stdin=stdin)
    assert (done.returncode, done.stderr) == (status, "")
    return done.stdout


def answer(where: Path, *words: str, status: int = 0) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(said(where, *words, "--json", status=status))
    return found


def pack(where: Path, log: dict[str, Any] | None = None) -> str:
    """The digits of the new pack's address."""
    address = said(where, "pack", "-", stdin=json.dumps(log or LOG)).strip()
    assert address.startswith("ctx://")
    return address.removeprefix("ctx://")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    root.mkdir()
    said(root, "init")
    return root


def test_the_same_log_has_one_hash(project: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    said(other, "init")
    (other / "run.json").write_text(json.dumps(LOG, indent=2))
    assert said(other, "pack", "run.json").strip() == "ctx://" + pack(project)
    assert len(list((project / ".ctx/packs").iterdir())) == 1


def test_24_packs_of_one_log_at_once(project: Path) -> None:
    (project / "run.json").write_text(json.dumps(LOG))
    packers = [
        subprocess.Popen(
            [*CTX, "pack", "run.json"],
            cwd=project,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(24)
    ]
    told = [(*packer.communicate(), packer.returncode) for packer in packers]
    alone = pack(project)
    assert set(told) == {(f"ctx://{alone}\n", "", 0)}
    objects = [path for path in (project / ".ctx/objects").rglob("*") if path.is_file()]
    assert len(objects) == 5  # four contents (input and step output are the same) and the manifest
    assert list((project / ".ctx/tmp").iterdir()) == []


@pytest.mark.needs("linux")
def test_a_huge_output_needs_little_memory(project: Path) -> None:
    with (project / "run.json").open("w") as file:
        head, tail = json.dumps(LOG).split("print('hi')\\n", 2)[1:]
        file.write(json.dumps(LOG).split("print('hi')\\n", 1)[0] + "print('hi')\\n" + head)
        for _ in range(160):
            file.write("a line of output\\n" * 55_000)
        file.write(tail)
    # Asked from inside: getrusage also counts what the test runner had before exec.
    script = """
from substrate.cli.ctx import ctx
assert ctx(["pack", "run.json"]) == 0
print(next(line for line in open("/proc/self/status") if line.startswith("VmHWM")).split()[1])
"""
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=project, capture_output=True, text=True, check=False
    )
    assert done.stderr == ""
    address, peak_kib = done.stdout.split()
    assert address.startswith("ctx://")
    assert int(peak_kib) < 100 * 1024
    expected = hashlib.sha256(b"a line of output\n" * 55_000 * 160).hexdigest()
    assert (project / ".ctx/objects" / expected[:2] / expected[2:]).is_file()


def test_a_mistake_in_a_log_is_reported_with_its_line(project: Path) -> None:
    text = json.dumps(LOG, indent=1).replace('"tool":', '"tol":')
    done = ctx(project, "pack", "-", stdin=text)
    assert done.returncode == 2
    line = text.split("\n").index('   "tol": "read_file",') + 1
    assert f"line {line}: steps[0].tol: no such field; did you mean tool?" in done.stderr
    assert list((project / ".ctx/packs").iterdir()) == []


def test_packing_without_a_store_says_what_to_do(tmp_path: Path) -> None:
    done = ctx(tmp_path, "pack", "-", stdin=json.dumps(LOG))
    assert done.returncode == 4
    assert "ctx init" in done.stderr


def test_no_log_no_file_no_words(project: Path) -> None:
    assert ctx(project, "pack").returncode == 2
    assert ctx(project, "pack", "nosuch.json").returncode == 4
    assert ctx(project, "pack", ".").returncode == 2
    assert ctx(project, "pack", "-", "--notes", "x", stdin=json.dumps(LOG)).returncode == 2


def test_a_graph_and_packs_live_in_one_ctx(project: Path) -> None:
    pack(project)
    said(project, "init")
    assert {"graph", "objects", "packs", "refs", "drafts"} <= {
        path.name for path in (project / ".ctx").iterdir()
    }


def test_sidecars_are_beside_existing_outputs(project: Path) -> None:
    (project / "run.json").write_text(json.dumps(LOG))
    done = ctx(project, "pack", "run.json", "--sidecars")
    assert "no sidecar for answer.md: there is no such file here" in done.stderr
    (project / "answer.md").write_text("It greets.\n")
    words = ("--confidence", "high", "--notes", "by hand")
    found = answer(project, "pack", "run.json", "--sidecars", *words)
    sidecar = json.loads((project / "answer.md.ctx.json").read_text())
    assert sidecar == {
        "context_pack": found["pack"],
        "inputs": ["sha256:" + hashlib.sha256(b"print('hi')\n").hexdigest()],
        "tools": ["read_file"],
        "confidence": "high",
        "notes": "by hand",
    }
    assert ctx(project, "pack", "--sidecars", "run.json").returncode == 0
    (project / "answer.md").write_text("It greets!\n")
    done = ctx(project, "pack", "--sidecars", "run.json")
    assert "answer.md is not what was recorded" in done.stderr


def test_sidecars_in_a_directory_never_leave_it(project: Path, tmp_path: Path) -> None:
    names = ("../../evil.md", "/etc/evil.md", "sub/good.md", "..", "a/../../b", "")
    log = LOG | {"outputs": [{"name": name or "x", "content": ""} for name in names]}
    (project / "run.json").write_text(json.dumps(log))
    done = ctx(project, "pack", "run.json", "--sidecars", "meta")
    assert done.returncode == 0
    made = {p.relative_to(tmp_path).as_posix() for p in tmp_path.rglob("*.ctx.json")}
    assert made == {"project/meta/sub/good.md.ctx.json", "project/meta/x.ctx.json"}


def test_a_file_that_is_no_sidecar_is_not_overwritten(project: Path) -> None:
    (project / "answer.md").write_text("It greets.\n")
    (project / "answer.md.ctx.json").write_text('{"my": "own"}')
    done = ctx(project, "pack", "-", "--sidecars", stdin=json.dumps(LOG))
    assert "in the way and no sidecar" in done.stderr
    assert (project / "answer.md.ctx.json").read_text() == '{"my": "own"}'


def test_show_fills_in_what_a_hash_cannot_contain(project: Path) -> None:
    digits = pack(project)
    told = answer(project, "show", digits[:8])
    assert told["hash"] == f"sha256:{digits}"
    assert told["outputs"][0]["context_pack"] == f"sha256:{digits}"
    assert told["model"]["parameters"]["seed"] == 2**60 + 1
    full = answer(project, "show", f"ctx://{digits}", "--content")
    assert full["steps"][0]["output"] == "print('hi')\n"
    assert full["system_prompt_content"] == "Be careful."
    assert answer(project, "show", digits, "--step", "0")["tool"] == "read_file"
    text = said(project, "show", "--content")
    assert "It greets." in text
    assert "path=main.py" in text
    assert "What does main.py do?" in said(project, "show", "latest")
    assert ctx(project, "show", digits, "--step", "7").returncode == 4
    assert ctx(project, "show", "0000").returncode == 4


def test_recorded_bytes_come_back_exactly(project: Path) -> None:
    data = bytes(range(256)) * 3
    log = LOG | {"outputs": [{"name": "x", "content_b64": base64.b64encode(data).decode()}]}
    pack(project, log)
    words = [*CTX, "show", "latest", "--output", "x"]
    assert subprocess.run(words, cwd=project, capture_output=True, check=True).stdout == data
    assert said(project, "show", "--input", "main.py") == "print('hi')\n"
    done = ctx(project, "show", "latest", "--output", "y")
    assert (done.returncode, "it has: x" in done.stderr) == (4, True)
    assert ctx(project, "show", "latest", "--output", "x", "--json").returncode == 2


def test_integers_beyond_two_to_the_53_stay_exact(project: Path) -> None:
    digits = pack(project)
    stored = (project / ".ctx/objects" / digits[:2] / digits[2:]).read_bytes()
    assert b'"seed":1152921504606846977' in stored


def test_tampering_is_noticed_by_show(project: Path) -> None:
    digits = pack(project)
    content = hashlib.sha256(b"print('hi')\n").hexdigest()
    path = project / ".ctx/objects" / content[:2] / content[2:]
    path.chmod(0o600)
    path.write_bytes(b"print('ha')\n")
    done = ctx(project, "show", digits, "--content")
    assert done.returncode == 6
    assert f"object {content[:12]} is damaged" in done.stderr
    assert "print('ha')" not in done.stdout


def test_one_inserted_step_is_one_drift(project: Path) -> None:
    a = pack(project)
    step = {"type": "tool_call", "tool": "shell", "parameters": {"command": "ls"}, "output": "x"}
    b = pack(project, LOG | {"steps": [step, *LOG["steps"]]})
    told = json.loads(said(project, "diff", a, b, status=1))
    assert [(e["type"], e["step_index"]) for e in told["entries"]] == [("tool_drift", 0)]
    assert (told["has_drift"], told["pack_hash_a"]) == (True, f"sha256:{a}")
    assert json.loads(said(project, "diff", a, a))["entries"] == []
    human = said(project, "diff", a, b, "--human", status=1)
    assert "1 difference\n" in human
    assert "shell was added" in human
    assert "no drift" in said(project, "diff", a, a, "--human")
    step = LOG["steps"][0] | {"parameters": {"path": "main.py", "limit": 3}}
    c = pack(project, LOG | {"steps": [step]})
    human = said(project, "diff", a, c, "--human", status=1)
    assert '+ {"limit": 3}' in human  # what did not change is not repeated


@pytest.mark.needs("posix")
@pytest.mark.parametrize(("columns", "beside"), [(130, True), (80, False)])
def test_a_wide_terminal_shows_both_sides_beside_each_other(
    project: Path, columns: int, beside: bool
) -> None:
    a = pack(project)
    step = LOG["steps"][0] | {"output": "print('\x1b]0;evil\x07')\n"}
    b = pack(project, LOG | {"steps": [step]})
    shown = on_terminal(project, columns, "diff", a, b, "--human")
    assert ("print('hi')" + " " * 20 in shown) is beside
    assert (" │ " in shown) is beside
    assert "\x1b[31m" in shown  # our own colour
    assert "\x1b]0;evil" not in shown  # but no foreign escapes
    assert "\\x1b]0;evil" in shown


def on_terminal(where: Path, columns: int, *words: str) -> str:
    import fcntl
    import pty
    import struct
    import termios

    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    environment = {**os.environ, "TERM": "xterm"}
    child = subprocess.Popen(
        [*CTX, *words], cwd=where, env=environment, stdin=theirs, stdout=theirs, stderr=theirs
    )
    os.close(theirs)
    shown = b""
    try:
        while chunk := os.read(ours, 65536):
            shown += chunk
    except OSError:  # the other end is closed
        pass
    child.wait()
    os.close(ours)
    return shown.decode()


def test_tags_and_the_log(project: Path) -> None:
    a = pack(project)
    said(project, "tag", "v1", a)
    b = pack(project, LOG | {"system_prompt": "Other."})
    listed = answer(project, "log")["packs"]
    assert {entry["hash"]: entry["names"] for entry in listed} == {
        f"sha256:{a}": ["v1"],
        f"sha256:{b}": ["latest"],
    }
    assert len(answer(project, "log", "--limit", "1")["packs"]) == 1
    text = said(project, "log")
    assert a[:12] in text
    assert "(v1)" in text
    assert answer(project, "show", "v1")["hash"] == f"sha256:{a}"
    assert answer(project, "tag") == {"tags": [{"name": "v1", "pack": f"sha256:{a}"}]}
    moved = said(project, "tag", "v1", b)
    assert f"back with: ctx tag v1 {a[:12]}" in moved
    said(project, "tag", "--delete", "v1")
    assert ctx(project, "show", "v1").returncode == 4
    assert ctx(project, "tag", "../x", a).returncode == 2
    assert ctx(project, "tag", "x", "nosuch").returncode == 4


@pytest.mark.needs("jq")
def test_a_round_trip_with_sha256sum_and_jq_alone(project: Path) -> None:
    """Written from the fields in docs/packs.md; checked with nothing of ours."""
    (project / "run.json").write_text(json.dumps(LOG))
    script = """
set -eu
uri=$("$@" pack run.json); hex=${uri#ctx://}
file=.ctx/objects/${hex%${hex#??}}/${hex#??}
test "$(sha256sum < "$file" | cut -d' ' -f1)" = "$hex"
test "$(jq -r .hash "$file")" = ""
test "$(jq -cS . "$file" | tr -d '\\n' | sha256sum | cut -d' ' -f1)" = "$hex"
for ref in $(jq -r '.. | strings | select(startswith("sha256:"))' "$file"); do
    one=${ref#sha256:}
    test "$(sha256sum < ".ctx/objects/$(printf %.2s "$one")/${one#??}" | cut -d' ' -f1)" = "$one"
done
jq -r '.steps[0].tool, .model.identifier, .outputs[0].name' "$file"
"""
    log = json.loads((project / "run.json").read_text())
    log["model"]["parameters"]["seed"] = 7  # jq 1.6 rounds what is above 2^53
    (project / "run.json").write_text(json.dumps(log))
    done = subprocess.run(
        ["sh", "-c", script, "sh", *CTX], cwd=project, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.split() == ["read_file", "claude-opus-4-6", "answer.md"]


SUBSTRATE = [
    sys.executable,
    "-c",
    "import sys; from substrate.cli.main import substrate; sys.exit(substrate())",
]


def with_sidecar(project: Path) -> Path:
    """`answer.md` as recorded, its sidecar beside it."""
    (project / "answer.md").write_text("It greets.\n")
    said(project, "pack", "-", "--sidecars", stdin=json.dumps(LOG))
    return project / "answer.md"


def test_verify_exits_0_only_for_the_recorded_bytes(project: Path) -> None:
    artifact = with_sidecar(project)
    told = answer(project, "verify", "answer.md")
    assert (told["verified"], told["status"]) == (True, "verified")
    assert "verified" in said(project, "verify", "answer.md")
    assert "verified" in said(project.parent, "verify", "project/answer.md")
    artifact.write_text("It greets!\n")
    assert answer(project, "verify", "answer.md", status=1)["status"] == "modified"
    assert "modified" in said(project, "verify", "answer.md", status=1)
    (project / "answer.md.ctx.json").unlink()
    assert answer(project, "verify", "answer.md", status=1)["status"] == "sidecar_missing"
    assert (
        answer(project, "verify", "answer.md", "--pack", "latest", status=1)["status"] == "modified"
    )
    assert ctx(project, "verify", "nosuch.md").returncode == 4


def test_verify_names_the_recorded_command_that_wrote_the_bytes(project: Path) -> None:
    environment = {**os.environ, "SUBSTRATE_DAEMON": "off"}

    def recorded(command: str) -> None:
        subprocess.run([*SUBSTRATE, "-c", command], cwd=project, env=environment, check=True)

    recorded("echo draft > answer.md")
    recorded("echo 'It greets.' > answer.md")
    recorded("echo other > other.md")
    said(project, "pack", "-", "--sidecars", stdin=json.dumps(LOG))
    told = answer(project, "verify", "answer.md")
    assert told["command"]["command"] == "echo 'It greets.' > answer.md"
    assert told["command"]["command_id"].startswith("c-")
    assert "echo 'It greets.' > answer.md" in said(project, "verify", "answer.md")
    (project / "answer.md").write_text("by hand\n")
    assert answer(project, "verify", "answer.md", status=1)["command"] is None


@pytest.mark.needs("ssh-keygen")
def test_signatures_of_ssh_keygen(project: Path, tmp_path: Path) -> None:
    with_sidecar(project)
    for name in ("ada", "eve"):
        argv = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(tmp_path / name)]
        subprocess.run(argv, check=True)
    allowed = tmp_path / "allowed_signers"
    allowed.write_text("ada@example.org " + (tmp_path / "ada.pub").read_text())
    words = ("verify", "answer.md", "--signed-by", str(allowed))
    told = answer(project, *words, status=1)
    assert (told["status"], told["signatures"]) == ("verified", [])
    said(project, "sign", "latest", "--key", str(tmp_path / "eve"))
    assert answer(project, *words, status=1)["signatures"][0]["valid"] is False
    assert "not signed" in said(project, *words, status=1)
    said(project, "sign", "latest", "--key", str(tmp_path / "ada"))
    told = answer(project, *words)
    assert told["verified"] is True
    assert [s["principal"] for s in told["signatures"] if s["valid"]] == ["ada@example.org"]
    assert answer(project, *words, "--identity", "eve@example.org", status=1)["verified"] is False
    # A signature of another pack, put in this one's place, does not count.
    digits = pack(project, LOG | {"system_prompt": "Other."})
    (mine,) = [s["file"] for s in told["signatures"] if s["valid"]]
    place = project / ".ctx/signatures" / digits
    place.mkdir()
    (place / "0.sig").write_bytes(Path(mine).read_bytes())
    (project / "answer.md.ctx.json").unlink()
    moved = answer(project, *words, "--pack", digits, status=1)
    assert moved["status"] == "verified"
    assert moved["signatures"][0]["valid"] is False
    assert ctx(project, "sign", "latest", "--key", "nosuch").returncode == 4
    # And the bundle carries them.
    said(project, "export", "latest", told["pack"], str(tmp_path / "b.tgz"))
    other = tmp_path / "other"
    other.mkdir()
    said(other, "init")
    assert answer(other, "import", str(tmp_path / "b.tgz"))["signatures"] == 3


def test_fork_edit_finalize(project: Path) -> None:
    digits = pack(project)
    done = ctx(project, "fork", "latest")
    assert done.returncode == 0
    draft = Path(done.stdout.strip())
    edited = json.loads(draft.read_text()) | {"system_prompt": "Be bold."}
    draft.write_text(json.dumps(edited))
    second = ctx(project, "fork", digits[:8])
    assert "there are 2 drafts of this pack" in second.stderr
    assert json.loads(draft.read_text()) == edited
    address = said(project, "finalize", draft.name).strip()
    assert answer(project, "show", address)["parent"] == f"sha256:{digits}"
    told = json.loads(said(project, "diff", digits, "latest", status=1))
    assert [entry["type"] for entry in told["entries"]] == ["prompt_drift"]
    assert "-Be careful." in told["entries"][0]["content_diff"]
    log = said(project, "log")
    assert f"fork of {digits[:12]}" in log
    assert log.index(address[6:18]) < log.index(f"*  {digits[:12]}")
    assert ctx(project, "finalize", "nosuch").returncode == 4


def test_export_and_import(project: Path, tmp_path: Path) -> None:
    digits = pack(project)
    said(project, "export", "latest", "run.tgz")
    assert ctx(project, "export", "latest", "run.tgz").returncode == 5
    assert ctx(project, "export", "run.tgz").returncode == 2
    other = tmp_path / "other"
    other.mkdir()
    said(other, "init")
    assert said(other, "import", str(project / "run.tgz")) == f"ctx://{digits}\n"
    assert answer(other, "show", digits)["hash"] == f"sha256:{digits}"
    assert "sound" in said(other, "fsck")
    (other / "bad.tgz").write_bytes((project / "run.tgz").read_bytes()[:-40])
    done = ctx(other, "import", "bad.tgz")
    assert done.returncode == 5
    assert "nothing was changed" in done.stderr
    said(project, "export", "latest", "run.json", "--format", "in-toto")
    told = json.loads((project / "run.json").read_text())
    assert told["_type"] == "https://in-toto.io/Statement/v1"
    assert told["subject"] == [
        {
            "name": "answer.md",
            "digest": {"sha256": hashlib.sha256(b"It greets.\n").hexdigest()},
        }
    ]
    said(project, "export", "latest", "run.dsse", "--format", "dsse")
    envelope = json.loads((project / "run.dsse").read_text())
    assert json.loads(base64.b64decode(envelope["payload"]))["subject"] == told["subject"]


def test_fsck_and_gc(project: Path) -> None:
    digits = pack(project)
    assert answer(project, "fsck")["sound"] is True
    content = hashlib.sha256(b"It greets.\n").hexdigest()
    path = project / ".ctx/objects" / content[:2] / content[2:]
    path.chmod(0o600)
    path.write_bytes(b"It greetz.\n")
    told = answer(project, "fsck", status=6)
    (finding,) = told["findings"]
    assert finding["what"] == f"sha256:{content}"
    assert finding["breaks"] == [f"pack {digits[:12]}: outputs[0] (answer.md)"]
    assert "breaks pack" in said(project, "fsck", status=6)
    assert pack(project) == digits  # packing again heals it
    assert answer(project, "fsck")["sound"] is True
    (project / ".ctx/objects/ab").mkdir(exist_ok=True)
    (project / ".ctx/objects/ab/cd.tmp").write_text("as the original left them")
    assert "would remove objects/ab/cd.tmp" in said(project, "gc", "--dry-run")
    assert answer(project, "gc")["leftovers"] == ["objects/ab/cd.tmp"]
    assert answer(project, "gc", "--drop", "latest")["dropped"] == [f"sha256:{digits}"]
    assert answer(project, "log")["packs"] == []
    assert not [p for p in (project / ".ctx/objects").rglob("*") if p.is_file()]


def test_a_pack_that_the_original_stored_is_read(project: Path) -> None:
    """Blobs and manifest as the Go program writes them; it lists the pack and knows no tags."""
    store = project / ".ctx"

    def put(data: bytes) -> str:
        digits = hashlib.sha256(data).hexdigest()
        (store / "objects" / digits[:2]).mkdir(exist_ok=True)
        path = store / "objects" / digits[:2] / digits[2:]
        path.write_bytes(data)
        path.chmod(0o444)
        return f"sha256:{digits}"

    prompt, output = put(b"You are careful."), put(b"a < b")
    manifest = (
        '{"created":"2026-02-10T14:30:00.123456789Z","environment":{"os":"darwin","runtime":"go1.22",'
        '"tool_versions":null},"hash":"","inputs":[],"model":{"identifier":"claude-opus-4-6",'
        '"parameters":{"max_tokens":4096,"temperature":0}},"outputs":[{"content_ref":"OUTPUT","name":'
        '"result.md"}],"prompts":[],"steps":[{"deterministic":true,"index":0,"output_ref":"OUTPUT",'
        '"parameters":{"path":"a \\u003c b"},"timestamp":"2026-02-10T14:30:00Z","tool":"read_file",'
        '"type":"tool_call"}],"system_prompt":"PROMPT","version":"0.1"}'
    )
    manifest = manifest.replace("OUTPUT", output).replace("PROMPT", prompt)
    ref = put(manifest.encode())
    (store / "packs" / ref[7:]).write_text(ref)
    told = answer(project, "show", ref[7:15])
    assert told["steps"][0]["parameters"] == {"path": "a < b"}
    assert told["outputs"][0]["context_pack"] == ref
    assert answer(project, "log")["packs"][0]["model"] == "claude-opus-4-6"
    assert answer(project, "fsck")["sound"] is True
    sidecar = {"context_pack": ref, "inputs": None, "tools": ["read_file"]}
    (project / "result.md").write_bytes(b"a < b")
    (project / "result.md.ctx.json").write_text(json.dumps(sidecar))
    assert answer(project, "verify", "result.md")["verified"] is True
