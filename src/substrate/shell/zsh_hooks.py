"""The start files for the user's zsh: the user's own files first, then our hooks.

zsh reads them from ``ZDOTDIR``, so that points to our directory until the last of them is read.
zsh calls `preexec` and `precmd` in the shell itself, beside the user's own hooks; ours come first.
The messages and answers are the same as in `hooks`, which explains more.

zsh passes each line to `preexec`, whether its history keeps the line or not. A line that begins
with a blank under ``HIST_IGNORE_SPACE`` is recorded without its text.
"""

from __future__ import annotations

import shlex
from pathlib import Path

_ENV = r"""
ZDOTDIR=$__substrate_zdotdir
[[ -n $ZDOTDIR ]] || unset ZDOTDIR
[[ -r ${ZDOTDIR:-$HOME}/.zshenv ]] && . "${ZDOTDIR:-$HOME}/.zshenv"
__substrate_zdotdir=${ZDOTDIR-}
ZDOTDIR=$__substrate_dir
"""

_RC = r"""
ZDOTDIR=$__substrate_zdotdir
[[ -n $ZDOTDIR ]] || unset ZDOTDIR
unset __substrate_zdotdir
# Where the system's own start file put it into ZDOTDIR.
[[ ${HISTFILE-} == $__substrate_dir/* ]] && HISTFILE=${ZDOTDIR:-$HOME}/${HISTFILE:t}
[[ -r ${ZDOTDIR:-$HOME}/.zshrc ]] && . "${ZDOTDIR:-$HOME}/.zshrc"

typeset -g __substrate_at=1 __substrate_answer=

__substrate_say() {
  local token=$$.$RANDOM$RANDOM form='\0\1%s\0%s\0%s\0' word
  repeat $(($# - 1)); do form+='%s\0'; done
  __substrate_answer=
  while [[ -z $__substrate_pid ]] || builtin kill -0 "$__substrate_pid" 2>/dev/null; do
    builtin printf "$form" "$1" "$token" "${@:2}" "$token" 1<>"$__substrate_dir/said" || return
    while IFS=' ' builtin read -r -t 2 word __substrate_answer <>"$__substrate_dir/answer"; do
      [[ $word == $token ]] && return
    done
  done
}

__substrate_begin() {
  local unkept=
  [[ -o hist_ignore_space && $1 == ' '* ]] && unkept=1
  emulate -L zsh
  builtin trap '' INT
  [[ -n $unkept ]] || ((__substrate_at += 1))
  __substrate_say begin "$__substrate_at" "${1:-$3}" "$PWD"
}

__substrate_end() {
  local ended=$?
  emulate -L zsh
  builtin trap '' INT
  __substrate_say end "$__substrate_at" "$ended"
  [[ $__substrate_answer == leave ]] && __substrate_leave
  [[ $__substrate_answer == again ]] && ((__substrate_at -= 1))
  return $ended
}

__substrate_leave() {
  setopt localoptions noautopushd  # which `emulate` leaves alone
  local here=$PWD old=$OLDPWD at=$PWD
  builtin cd -q /
  __substrate_say left
  until builtin cd -q -- "$at" 2>/dev/null; do at=${at%/*}; done
  [[ $at == $here ]] || builtin printf 'substrate: %s is not there any more\n' "$here" >&2
  OLDPWD=$old
}

preexec_functions=(__substrate_begin ${preexec_functions-})
precmd_functions=(__substrate_end ${precmd_functions-})
"""


def zsh_files(directory: Path, pid: int | None, zdotdir: str) -> dict[str, str]:
    """The files by name; `zdotdir` is the user's own. The rest is as in `hooks.bash_rc`."""
    known = "" if pid is None else str(pid)
    head = (
        f"__substrate_dir={shlex.quote(str(directory))}\n"
        f"__substrate_pid={known}\n__substrate_zdotdir={shlex.quote(zdotdir)}\n"
    )
    return {".zshenv": head + _ENV, ".zshrc": _RC}
