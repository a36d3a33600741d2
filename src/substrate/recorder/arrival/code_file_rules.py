"""Files that make other programs run code, as data: the file, and what runs it.

`tests/unit/recorder/arrival/test_code_execution_risks.py` has a change for each.
"""

from __future__ import annotations

_SHELL = "a shell, when it starts or ends"
_EDITOR = "the editor, when the folder is opened"
_DEBUGGER = "the debugger"
_PYTHON = "every Python that has its directory on its path"
_AGENT = "a coding agent"
_HOOKS = "git, by a hook"
_NPM = "the package manager"

#: A name, at any depth -> what runs it.
NAMES: dict[bytes, str] = {
    b".envrc": "direnv",
    b".bashrc": _SHELL, b".bash_profile": _SHELL, b".bash_login": _SHELL, b".bash_logout": _SHELL,
    b".profile": _SHELL, b".zshrc": _SHELL, b".zprofile": _SHELL, b".zshenv": _SHELL,
    b".zlogin": _SHELL, b".zlogout": _SHELL, b".kshrc": _SHELL, b".cshrc": _SHELL,
    b".tcshrc": _SHELL, b".inputrc": _SHELL,
    b".vimrc": _EDITOR, b".nvimrc": _EDITOR, b".exrc": _EDITOR, b".nvim.lua": _EDITOR,
    b".emacs": _EDITOR, b".dir-locals.el": _EDITOR,
    b".gdbinit": _DEBUGGER, b".lldbinit": _DEBUGGER,
    b".pythonrc": _PYTHON, b"sitecustomize.py": _PYTHON, b"usercustomize.py": _PYTHON,
    b".mcp.json": _AGENT, b"opencode.json": _AGENT, b"opencode.jsonc": _AGENT,
    b".pre-commit-config.yaml": _HOOKS, b".gitmodules": _HOOKS,
    b"lefthook.yml": _HOOKS, b"lefthook.yaml": _HOOKS, b"lefthook.toml": _HOOKS,
    b"lefthook.json": _HOOKS, b".lefthook.yml": _HOOKS, b".lefthook.yaml": _HOOKS,
    b"lefthook-local.yml": _HOOKS, b".lefthook-local.yml": _HOOKS,
    b".npmrc": _NPM, b".yarnrc": _NPM, b".yarnrc.yml": _NPM, b".pnpmfile.cjs": _NPM,
    b".pnpmfile.mjs": _NPM, b"pnpmfile.js": _NPM,
    b"mise.toml": "mise", b".mise.toml": "mise", b"mise.local.toml": "mise",
    b".mise.local.toml": "mise",
    b"rust-toolchain.toml": "rustup, by a path", b"rust-toolchain": "rustup, by a path",
    b".substrateignore": "nothing; but it decides what Substrate records",
}  # fmt: skip

#: The end of a name -> what runs it.
ENDINGS: dict[bytes, str] = {
    b".pth": "every Python that has it in its site-packages",
    b".code-workspace": _EDITOR,
}

#: A path, or a directory with everything in it, at any depth. All begin with a dot.
PLACES: dict[bytes, str] = {
    b".claude/settings.json": _AGENT,
    b".claude/settings.local.json": _AGENT,
    b".claude/hooks": _AGENT,
    b".claude/commands": _AGENT,
    b".cursor": _AGENT,
    b".windsurf": _AGENT,
    b".codex": _AGENT,
    b".gemini": _AGENT,
    b".opencode": _AGENT,
    b".kiro/hooks": _AGENT,
    b".kiro/settings": _AGENT,
    b".aider.conf.yml": _AGENT,
    b".vscode/tasks.json": _EDITOR,
    b".vscode/launch.json": _EDITOR,
    b".vscode/settings.json": _EDITOR,
    b".idea/runConfigurations": _EDITOR,
    b".zed/tasks.json": _EDITOR,
    b".zed/settings.json": _EDITOR,
    b".devcontainer": _EDITOR,
    b".husky": _HOOKS,
    b".cargo/config.toml": "cargo",
    b".cargo/config": "cargo",
    b".mise": "mise",
    b".config/mise": "mise",
    b".config/fish": _SHELL,
    b".yarn/plugins": _NPM,
    b".yarn/releases": _NPM,
    b".ctx/config.json": "a replay, by its tools",
}
