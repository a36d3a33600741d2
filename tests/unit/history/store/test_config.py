from __future__ import annotations

from pathlib import Path

import pytest

from substrate.errors import UsageError
from substrate.history.store.config import Config, load_config


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_without_files_the_defaults_hold(tmp_path: Path) -> None:
    config = load_config(tmp_path / "none", tmp_path / "neither")
    assert config == Config()
    assert (config.retention_checkpoints, config.retention_sessions) == (5, 5)
    assert config.disk_cap_bytes == 2 << 30
    assert config.max_file_bytes == 64 << 20


def test_each_setting_is_reported_with_its_default() -> None:
    page = Path(__file__, "../../../../../docs/commands.md").resolve().read_text()
    rows = [line.split(" | ") for line in page.partition("## Settings")[2].splitlines()]
    told = {row[0].strip("| `"): row[1] for row in rows if row[0].startswith("| `")}
    assert told == {
        name.replace("_", ".", 1): str(value).lower()
        for name, value in Config._field_defaults.items()
    }


def test_the_workspace_wins_over_the_user_key_by_key(tmp_path: Path) -> None:
    home = write(tmp_path / "home.toml", "[retention]\ncheckpoints = 9\nsessions = 8\n")
    here = write(tmp_path / "here.toml", "[retention]\nsessions = 2\n[compact]\nauto = false\n")
    config = load_config(home, here)
    assert (config.retention_checkpoints, config.retention_sessions) == (9, 2)
    assert config.compact_auto is False


BAD: dict[str, tuple[str | bytes, str]] = {
    "no TOML": ("[retention\n", "mend the file"),
    "no UTF-8": (b"\xff\xfe", "mend the file"),
    "unknown section": ("[retentoin]\ncheckpoints = 1\n", "the settings are"),
    "unknown key": ("[retention]\ncheckpionts = 1\n", "retention.checkpoints"),
    "no section": ("checkpoints = 1\n", "the settings are"),
    "text for a number": ('[retention]\ncheckpoints = "5"\n', "the settings are"),
    "a fraction": ("[retention]\ncheckpoints = 1.5\n", "the settings are"),
    "truth for a number": ("[retention]\ncheckpoints = true\n", "the settings are"),
    "a number for truth": ("[compact]\nauto = 1\n", "the settings are"),
    "negative": ("[session]\nidle_hours = -1\n", "the settings are"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_is_wrong_is_named_with_its_file(tmp_path: Path, name: str) -> None:
    data, hint = BAD[name]
    file = tmp_path / "config.toml"
    file.write_bytes(data if isinstance(data, bytes) else data.encode())
    with pytest.raises(UsageError) as caught:
        load_config(file)
    assert str(file) in caught.value.message
    assert hint in caught.value.hint


def test_a_project_does_not_open_the_machine_s_services(tmp_path: Path) -> None:
    home, here = tmp_path / "home.toml", tmp_path / "here.toml"
    home.write_text("[world]\nallow_host_services = true\n")
    assert load_config(home, here).world_allow_host_services
    here.write_text("[world]\nallow_host_services = true\n")
    with pytest.raises(UsageError, match=r"world\.allow_host_services is the user's to set"):
        load_config(home, here)


def test_a_sections_former_name_stays_valid(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text("[agent]\nidle_exit_s = 7\nwatch = false\n")
    found = load_config(file)
    assert (found.daemon_idle_exit_s, found.daemon_watch) == (7, False)
    file.write_text("[agent]\nno_such_key = 1\n")
    with pytest.raises(UsageError, match=r"agent\.no_such_key"):
        load_config(file)
