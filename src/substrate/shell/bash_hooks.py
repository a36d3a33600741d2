"""The rc file for the user's bash: the user's own file first, then our hooks.

bash expands PS0 after reading a line and before running it, in a subshell. So we do not need the
DEBUG trap, and the user can keep theirs. PROMPT_COMMAND runs before each prompt, and our hook is
its first command. Where PROMPT_COMMAND can be an array, our hook is also its last entry, in case
the user's code overwrites the first.

The line's text is bash's own history entry. A line that bash does not keep (a leading blank
under `ignorespace`, HISTIGNORE) is recorded without its text: the user did not want it kept.
`ignoredups` would make a repeated line look like one of these, so we switch it off and remove
duplicates here.

When the view of the workspace is changed, bash must not be in the old view: it changes to `/` and
comes back. Ctrl-C is ignored until it is back; otherwise it could stay in `/`.
"""

from __future__ import annotations

import shlex
from pathlib import Path

_RC = r"""
if [ -r ~/.bashrc ]; then . ~/.bashrc; fi

__substrate_dups= __substrate_said=
case :${HISTCONTROL-}: in
  *:ignoreboth:*) HISTCONTROL=${HISTCONTROL/ignoreboth/ignorespace} __substrate_dups=1 ;;
  *:ignoredups:*) HISTCONTROL=${HISTCONTROL/ignoredups/} __substrate_dups=1 ;;
esac

# The newest entry of the history, and the trap for Ctrl-C.
__substrate_look() {
  local entry
  entry=$(builtin trap -p INT; builtin printf '\1'; HISTTIMEFORMAT='' builtin history 1)
  __substrate_int=${entry%%$'\1'*}
  entry=${entry#*$'\1'}
  entry=${entry#"${entry%%[![:space:]]*}"}
  __substrate_at=${entry%%[!0-9]*}
  __substrate_text=${entry#"$__substrate_at"}
  __substrate_text=${__substrate_text:2}
}

# Says something to the recorder and waits for the answer to it, as long as there is a recorder.
# Ctrl-C may have left an older answer unread, or have eaten ours: hence the token, and asking
# again. Opened for reading and writing, a pipe never makes us wait for the other side.
__substrate_say() {
  local token=$BASHPID.$RANDOM$RANDOM form='\0\1%s\0%s\0%s\0' word
  local count=$#
  while [ "$count" -gt 1 ]; do form=$form'%s\0' count=$((count - 1)); done
  __substrate_answer=
  while [ -z "$__substrate_pid" ] || builtin kill -0 "$__substrate_pid" 2>/dev/null; do
    builtin printf "$form" "$1" "$token" "${@:2}" "$token" 1<>"$__substrate_dir/said" || return
    while IFS=' ' builtin read -r -t 2 word __substrate_answer <>"$__substrate_dir/answer"; do
      if [ "$word" = "$token" ]; then return; fi
    done
  done
}

__substrate_begin() {
  set +xeu
  __substrate_look
  __substrate_say begin "$__substrate_at" "$__substrate_text" "$PWD"
}

__substrate_end() {
  local status=$?
  { local -; set +xeu; } 2>/dev/null
  local __substrate_at __substrate_text __substrate_int __substrate_answer
  __substrate_look
  builtin trap '' INT
  __substrate_say end "$__substrate_at" "$status"
  if [ "$__substrate_answer" = leave ]; then __substrate_leave; fi
  builtin eval "${__substrate_int:-builtin trap - INT}"
  if [ "$__substrate_answer" = again ] && [ -n "$__substrate_dups" ]; then
    builtin history -d "$__substrate_at"
  fi
  __substrate_said=1
  return "$status"
}

__substrate_leave() {
  local here=$PWD old=${OLDPWD-} had=${OLDPWD+1} at=$PWD CDPATH=
  builtin cd /
  __substrate_say left
  until builtin cd -- "$at" 2>/dev/null; do at=${at%/*}; done
  if [ "$at" != "$here" ]; then
    builtin printf 'substrate: %s is not there any more\n' "$here" >&2
  fi
  if [ -n "$had" ]; then OLDPWD=$old; else unset OLDPWD; fi
}

__substrate_end_once() {
  local status=$?
  if [ -n "${__substrate_said-}" ]; then __substrate_said=; return "$status"; fi
  (exit "$status")
  __substrate_end
  __substrate_said=
  return "$status"
}

PS0="${PS0-}"'$(__substrate_begin)'
if [[ $(declare -p PROMPT_COMMAND 2>/dev/null) == 'declare -a'* ]]; then
  PROMPT_COMMAND=(__substrate_end "${PROMPT_COMMAND[@]}" __substrate_end_once)
else
  PROMPT_COMMAND=__substrate_end${PROMPT_COMMAND:+$'\n'$PROMPT_COMMAND}
  if ((BASH_VERSINFO[0] * 100 + BASH_VERSINFO[1] >= 501)); then
    PROMPT_COMMAND=("$PROMPT_COMMAND" __substrate_end_once)
  fi
fi
"""


def bash_rc(directory: Path, pid: int | None) -> str:
    """The text of the rc file; the recorder is process `pid` and its pipes are in `directory`.

    `pid` is None in a world, where bash cannot see the recorder; that world ends with the recorder.
    """
    known = "" if pid is None else str(pid)
    return f"__substrate_dir={shlex.quote(str(directory))}\n__substrate_pid={known}\n{_RC}"
