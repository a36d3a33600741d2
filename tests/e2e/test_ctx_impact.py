"""What did a recorded command change, and what can that break? With known answers."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

CTX = "import sys; from substrate.cli.ctx import ctx; sys.exit(ctx())"
SUBSTRATE = "import sys; from substrate.cli.main import substrate; sys.exit(substrate())"

FILES = {
    "shop/__init__.py": "",
    "shop/prices.py": "def total(items):\n    return sum(items)\n\n\n"
    "def tax(amount):\n    return amount\n",
    "shop/cart.py": "from shop.prices import total\n\n\nclass Cart:\n    def sum(self):\n"
    "        return total([])\n",
    "shop/report.py": "import shop.prices as p\n\n\ndef report():\n    return p.total([])\n",
    "shop/tax.py": "from shop.prices import tax\n\n\ndef taxes():\n    return tax(1)\n",
    "app.py": "from shop.cart import Cart\n\n\ndef main():\n    return Cart().sum()\n",
    "guess.py": "def guess(thing):\n    return thing.sum()\n",
    "school/grades.py": "def total(items):\n    return max(items)\n\n\ndef best():\n"
    "    return total([])\n",
    "school/class_.py": "from school.grades import total\n\n\ndef grade():\n    return total([])\n",
    "web/total.ts": "export function total(xs: number[]) { return 0; }\n"
    "export function shown() { return total([]); }\n",
}


def run(code: str, where: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code, *words], cwd=where, capture_output=True, text=True, check=False
    )


def answer(code: str, where: Path, *words: str) -> dict[str, object]:
    done = run(code, where, *words, "--json")
    assert done.returncode == 0, done.stderr
    found: dict[str, object] = json.loads(done.stdout)
    return found


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    for name, content in FILES.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(content)
    for words in (("init", "-q"), ("add", "."), ("commit", "-q", "-m", "first")):
        subprocess.run(["git", *words], cwd=root, check=True)
    assert run(CTX, root, "init").returncode == 0
    return root


def impacted(found: dict[str, object]) -> list[str]:
    files = found["files"]
    assert isinstance(files, list)
    return [file["path"] for file in files]


def test_a_command_that_changes_one_function(project: Path) -> None:
    command = "sed -i 's/return sum/return 2 * sum/' shop/prices.py"
    done = run(SUBSTRATE, project, "-c", command)
    assert done.returncode == 0, done.stderr
    found = answer(CTX, project, "impact", "@")
    assert found["command"] == command
    assert impacted(found) == ["app.py", "shop/cart.py", "shop/report.py"]
    delta = found["delta"]
    assert isinstance(delta, dict)
    assert [symbol["fqname"] for symbol in delta["symbols_changed"]] == ["shop.prices.total"]
    log = answer(SUBSTRATE, project, "log")["commands"]
    assert isinstance(log, list)
    assert answer(CTX, project, "impact", log[0]["command_id"])["files"] == found["files"]
    said = run(CTX, project, "impact", "@").stdout
    assert "shop/cart.py:6" in said
    assert "school" not in said
    assert "web" not in said


def test_a_command_that_changed_nothing(project: Path) -> None:
    run(SUBSTRATE, project, "-c", "echo x > notes.txt")
    run(SUBSTRATE, project, "-c", "true")
    assert answer(CTX, project, "impact", "@")["files"] == []
    assert answer(CTX, project, "impact", "@~1")["files"] == []


def test_a_git_commit(project: Path) -> None:
    grades = project / "school/grades.py"
    grades.write_text(grades.read_text().replace("max", "min"))
    subprocess.run(["git", "commit", "-q", "-a", "-m", "second"], cwd=project, check=True)
    found = answer(CTX, project, "impact", "HEAD")
    assert impacted(found) == ["school/class_.py", "school/grades.py"]
    assert impacted(answer(CTX, project, "impact", "HEAD~1")) == []


def test_history_can_be_indexed_whole(project: Path) -> None:
    for n in range(3):
        run(SUBSTRATE, project, "-c", f"echo 'X = {n}' > x.py")
    found = answer(CTX, project, "index", "--history", "--all")["indexed"]
    assert isinstance(found, list)
    assert [one["files"] for one in found] == [10, 11, 11, 11]


def test_blame_names_the_symbol(project: Path) -> None:
    run(SUBSTRATE, project, "-c", "sed -i 's/return sum/return 2 * sum/' shop/prices.py")
    lines = answer(SUBSTRATE, project, "blame", "shop/prices.py")["lines"]
    assert isinstance(lines, list)
    assert [line["symbol"] for line in lines] == ["total", "total", None, None, "tax", "tax"]
