"""When a hook began: the daemon may serve it later, when the tool has run."""

from __future__ import annotations

from substrate.system import Environment, clock

#: Set by `launcher/client.c`: the clock in nanoseconds when the hook began.
HOOK_TIME = "SUBSTRATE_HOOK_NS"


def began_ns(environment: Environment) -> int:
    said, now_ns = environment.get(HOOK_TIME) or "", clock.now_ns()
    return min(int(said), now_ns) if said.isascii() and said.isdecimal() else now_ns
