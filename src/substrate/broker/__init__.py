"""`substrate` called by a command that runs in a world: answered outside, for that world only.

`broker` is the process that answers, started by the first call; `answer_call` handles one call in
its own process; `nested_commands` records commands that run inside the world. docs/security.md
says what a command inside the world can and cannot get from the broker.
"""

from __future__ import annotations

from substrate.room_door import lazy_names

TYPE_CHECKING = False
if TYPE_CHECKING:  # what other rooms may use
    from substrate.broker.answer_call import Answer as Answer
    from substrate.broker.answer_call import Answered as Answered
    from substrate.broker.answer_call import Call as Call
    from substrate.broker.wait_for_calls import InsideCalls as InsideCalls

__getattr__ = lazy_names(
    __name__,
    {
        "answer_call": "Answer, Answered, Call",
        "wait_for_calls": "InsideCalls",
    },
)
