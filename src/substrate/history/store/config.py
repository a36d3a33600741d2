"""Settings: the workspace's ``config.toml`` over the user's, over the defaults."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from substrate.errors import UsageError

MIB = 1024 * 1024


class Config(NamedTuple):
    """Every setting with its default. The names are ``section_key`` of the TOML file."""

    retention_checkpoints: int = 5
    retention_sessions: int = 5
    retention_recovery_days: int = 30
    retention_disk_cap_mib: int = 2048
    exclude_max_file_mib: int = 64
    session_idle_hours: int = 8
    trash_max_age_days: int = 14
    trash_max_mib: int = 4096
    compact_auto: bool = True
    #: Changes that make other programs run code wait for a decision.
    world_hold_code: bool = False
    #: The agent's (of the user's file alone): when it ends, and when it tidies up; 0: never.
    agent_idle_exit_s: int = 900
    agent_idle_work_s: int = 300
    #: Whether it watches the workspaces it serves.
    agent_watch: bool = True

    @property
    def disk_cap_bytes(self) -> int:
        return self.retention_disk_cap_mib * MIB

    @property
    def max_file_bytes(self) -> int:
        return self.exclude_max_file_mib * MIB


def load_config(*files: Path) -> Config:
    """Read the files that exist, later ones winning; a wrong key or value names its file."""
    values: dict[str, int | bool] = {}
    for file in files:
        if file.is_file():
            values.update(_read(file))
    return Config(**values)  # type: ignore[arg-type]  # each value was checked against its default


def _read(file: Path) -> dict[str, int | bool]:
    import tomllib  # most workspaces have no config file

    try:
        with file.open("rb") as stream:
            document = tomllib.load(stream)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{file}: {error}", hint="mend the file or remove it") from error
    out: dict[str, int | bool] = {}
    for section, keys in document.items():
        if not isinstance(keys, dict):
            raise UsageError(f"{file}: {section!r} is not a section", hint=_known())
        for key, value in keys.items():
            out[f"{section}_{key}"] = _checked(file, section, key, value)
    return out


def _checked(file: Path, section: str, key: str, value: object) -> int | bool:
    name = f"{section}_{key}"
    if name not in Config._field_defaults:
        raise UsageError(f"{file}: unknown setting {section}.{key}", hint=_known())
    default = Config._field_defaults[name]
    if type(value) is not type(default) or (type(value) is int and value < 0):
        wanted = "true or false" if isinstance(default, bool) else "a whole number, 0 or more"
        raise UsageError(f"{file}: {section}.{key} must be {wanted}", hint=_known())
    assert isinstance(value, int)
    return value


def _known() -> str:
    names = ", ".join(name.replace("_", ".", 1) for name in Config._fields)
    return f"the settings are: {names}"
