"""How an attempt of `substrate try` is known to the call that runs it: by its environment."""

from __future__ import annotations

from substrate.system import Environment

#: Which attempt it is, from 1 on: for the command, too.
NUMBER = "SUBSTRATE_ATTEMPT"
#: What the attempts of one call share.
GROUP = "SUBSTRATE_ATTEMPT_GROUP"


def attempt_of(environment: Environment) -> dict[str, object]:
    """For the entry's detail; empty for any other command."""
    group, number = environment.get(GROUP), environment.get(NUMBER)
    if not group or not number or not number.isdecimal():
        return {}
    return {"group": group, "attempt": int(number)}
