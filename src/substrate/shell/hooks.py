"""The rc file for the user's bash: their own first, then ours.

PS0 is expanded after a line was read and before it runs, in a subshell, so nothing of the
user's is in the way: no DEBUG trap is taken from them. PROMPT_COMMAND runs before each prompt;
ours comes first, to see the line's status, and hands that status on.

The line's text is bash's own history entry. A line that bash does not keep (a leading blank
under `ignorespace`, HISTIGNORE) is recorded without its text: its author did not want it kept.
`ignoredups` would make a repeated line look like one of these, so it is switched off and done
here instead.
"""

from __future__ import annotations

import shlex
from pathlib import Path

_RC = r"""
if [ -r ~/.bashrc ]; then . ~/.bashrc; fi

__substrate_dups=
case :${HISTCONTROL-}: in
  *:ignoreboth:*) HISTCONTROL=${HISTCONTROL/ignoreboth/ignorespace} __substrate_dups=1 ;;
  *:ignoredups:*) HISTCONTROL=${HISTCONTROL/ignoredups/} __substrate_dups=1 ;;
esac

__substrate_number() {
  local entry
  entry=$(HISTTIMEFORMAT='' builtin history 1)
  entry=${entry#"${entry%%[![:space:]]*}"}
  __substrate_at=${entry%%[!0-9]*}
  __substrate_text=${entry#"$__substrate_at"}
  __substrate_text=${__substrate_text:2}
}

# Says something to the recorder and waits for the answer to it, as long as there is a recorder.
# Ctrl-C may have left an older answer unread, or half of one: hence the token.
__substrate_say() {
  local token=$BASHPID.$RANDOM word
  kill -0 "$__substrate_pid" 2>/dev/null || return
  printf '%s\0' "$1" "$token" "${@:2}" >"$__substrate_dir/said" || return
  while kill -0 "$__substrate_pid" 2>/dev/null; do
    IFS=' ' read -r -t 5 word __substrate_answer <"$__substrate_dir/answer"
    [ "$word" = "$token" ] && return
  done
}

__substrate_begin() {
  __substrate_number
  __substrate_say begin "$__substrate_at" "$__substrate_text" "$PWD"
}

__substrate_end() {
  local status=$? __substrate_at __substrate_text __substrate_answer=
  __substrate_number
  __substrate_say end "$__substrate_at" "$status"
  if [ "$__substrate_answer" = again ] && [ -n "$__substrate_dups" ]; then
    builtin history -d "$__substrate_at"
  fi
  return "$status"
}

PS0="${PS0-}"'$(__substrate_begin)'
if [[ $(declare -p PROMPT_COMMAND 2>/dev/null) == 'declare -a'* ]]; then
  PROMPT_COMMAND=(__substrate_end "${PROMPT_COMMAND[@]}")
else
  PROMPT_COMMAND=__substrate_end${PROMPT_COMMAND:+$'\n'$PROMPT_COMMAND}
fi
"""


def bash_rc(directory: Path, pid: int) -> str:
    """The text; the recorder is process `pid`, its pipes are in `directory`."""
    return f"__substrate_dir={shlex.quote(str(directory))}\n__substrate_pid={pid}\n{_RC}"
