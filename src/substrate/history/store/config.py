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
    #: "redacted": the exact text of a command is not kept, not even in the private ledger.
    history_command_text: str = "full"
    #: "refuse": nothing runs while the workspace has unrecorded edits.
    history_external: str = "record"
    #: Hold changes that make other programs run code.
    world_hold_code: bool = False
    #: Commands may reach container engines, buses and terminals.
    world_allow_host_services: bool = False
    #: "any": a coding agent may take back what others did, too.
    agents_may_take_back: str = "own"
    #: Patterns of projects: the only ones in which agents may begin a history, and those in which
    #: nothing that an agent does is recorded.
    agents_allow: tuple[str, ...] = ()
    agents_deny: tuple[str, ...] = ()
    #: The daemon's, read from the user's file alone: when it ends and when it tidies up. 0: never.
    daemon_idle_exit_s: int = 900
    daemon_idle_work_s: int = 300
    #: Whether the daemon watches the workspaces it serves.
    daemon_watch: bool = True
    #: Whether it prepares anything before a call: `daemon/prefork/speed_layer.py`.
    daemon_speed: bool = True

    @property
    def disk_cap_bytes(self) -> int:
        return self.retention_disk_cap_mib * MIB

    @property
    def refuses_external(self) -> bool:
        return self.history_external == "refuse"

    @property
    def max_file_bytes(self) -> int:
        return self.exclude_max_file_mib * MIB


#: Settings with a fixed set of values.
_CHOICES = {
    "history_command_text": ("full", "redacted"),
    "history_external": ("record", "refuse"),
    "agents_may_take_back": ("own", "any"),
}
#: Former names of sections, which stay valid.
_FORMER = {"agent": "daemon"}
#: Settings that a project must not make for its user.
_USER_ONLY = frozenset(
    {"world_allow_host_services", "agents_may_take_back", "agents_allow", "agents_deny"}
)
#: What a setting in a file can be.
Setting = int | bool | str | tuple[str, ...]


def load_config(user: Path, *workspace: Path) -> Config:
    """Read the files that exist; later ones win. An error about a key or value names the file."""
    values: dict[str, Setting] = {}
    for file in (user, *workspace):
        if not file.is_file():
            continue
        read = read_settings(file)
        wrong = sorted(_USER_ONLY & read.keys()) if file != user else []
        if wrong:
            name = wrong[0].replace("_", ".", 1)
            raise UsageError(f"{file}: {name} is the user's to set", hint=f"set it in {user}")
        values.update(read)
    return Config(**values)  # type: ignore[arg-type]  # each value was checked against its default


def read_settings(file: Path) -> dict[str, Setting]:
    """The settings in a file, by their name in `Config`, each checked."""
    import tomllib  # most workspaces have no config file

    try:
        with file.open("rb") as stream:
            document = tomllib.load(stream)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{file}: {error}", hint="mend the file or remove it") from error
    out: dict[str, Setting] = {}
    for section, keys in document.items():
        if not isinstance(keys, dict):
            raise UsageError(f"{file}: {section!r} is not a section", hint=_known())
        for key, value in keys.items():
            out[f"{_FORMER.get(section, section)}_{key}"] = checked_setting(
                file, section, key, value
            )
    return out


def checked_setting(file: Path, section: str, key: str, value: object) -> Setting:
    """The value, if it is one of this setting; `UsageError` otherwise."""
    name = f"{_FORMER.get(section, section)}_{key}"
    if name not in Config._field_defaults:
        raise UsageError(f"{file}: unknown setting {section}.{key}", hint=_known())
    default = Config._field_defaults[name]
    if name in _CHOICES:
        if value not in _CHOICES[name]:
            wanted = " or ".join(f'"{one}"' for one in _CHOICES[name])
            raise UsageError(f"{file}: {section}.{key} must be {wanted}", hint=_known())
        return str(value)
    if isinstance(default, tuple):
        if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
            raise UsageError(f"{file}: {section}.{key} must be a list of texts", hint=_known())
        return tuple(value)
    if type(value) is not type(default) or (type(value) is int and value < 0):
        wanted = "true or false" if isinstance(default, bool) else "a whole number, 0 or more"
        raise UsageError(f"{file}: {section}.{key} must be {wanted}", hint=_known())
    assert isinstance(value, int)
    return value


def is_users_own(field: str) -> bool:
    """Whether a project must not set it."""
    return field in _USER_ONLY


def _known() -> str:
    names = ", ".join(name.replace("_", ".", 1) for name in Config._fields)
    return f"the settings are: {names}"
