"""`export-html`: one file that shows what happened, and holds no secret."""

from __future__ import annotations

import os
import re
import sqlite3
from contextlib import closing

from tests.contract.program import Program

TOKEN = "ghp_" + "a1B2c3D4e5" * 3 + "f6G7h8"
HOSTILE = "<script>alert(1)</script>\u202e"


def test_what_is_in_the_file_and_what_is_not(substrate: Program) -> None:
    (substrate.cwd / "a.txt").write_text("one\n")
    substrate.sh("true", env={"SUBSTRATE_SESSION_ID": "s-1"})
    (substrate.cwd / "said").write_text(f"token = {TOKEN}\n{HOSTILE}\n")
    substrate.sh("cat said >> a.txt; cp said .env", env={"SUBSTRATE_SESSION_ID": "s-1"})
    done = substrate.json("export-html", "../all.html")
    assert done["secrets"] >= 1 and done["private_files_left_out"] == 1
    path = substrate.cwd.parent / "all.html"
    text = path.read_text("utf-8")
    assert os.stat(path).st_mode & 0o777 == 0o600
    assert "cat said &gt;&gt; a.txt" in text
    assert TOKEN not in text
    assert "token = [redacted]" in text
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text and "<script" not in text
    assert "\u202e" not in text, "it is shown as a code"
    assert "A private file: its contents are not in this page." in text
    assert re.findall(r"https?://|<img|<link|\son\w+=", text) == [], "nothing is loaded"
    assert "default-src &#x27;none&#x27;" in text or "default-src 'none'" in text

    substrate("export-html", "../all.html").is_clear(5, "exists already")
    assert path.read_text("utf-8") == text
    whole = substrate.json("export-html", "s-1", "../session.html", "--with-private")
    assert whole["private_files_left_out"] == 0
    assert TOKEN not in (substrate.cwd.parent / "session.html").read_text("utf-8")
    substrate("export-html", "@").is_clear(2, "the name of the file is missing")
    substrate("export-html", "c-nothing", "../none.html").is_clear(4)
    assert not (substrate.cwd.parent / "none.html").exists()


def test_a_forged_ledger_makes_no_live_html(substrate: Program) -> None:
    substrate.sh("echo one > a.txt")
    command = substrate.json("log")["commands"][0]["command_id"]
    forged = "<img src=x onerror=alert(1)>"
    path = substrate.cwd / ".substrate-git" / "index" / "history.db"
    with closing(sqlite3.connect(path)) as ledger, ledger:
        ledger.execute("UPDATE entries SET kind = ?, exit = ?, agent_id = ?", (forged,) * 3)
    substrate("export-html", command, "../all.html").went_well()
    text = (substrate.cwd.parent / "all.html").read_text("utf-8")
    assert "exit &lt;img src=x" in text and text.count("&lt;img") == 3
    assert "<img" not in text
