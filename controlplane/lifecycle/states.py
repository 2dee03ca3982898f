"""How a sandbox may change: one pure table from (state, event) to (state, effects).

``requested -> queued -> starting [-> warm] -> running -> ending -> ended``; an end is legal in every state, and the
first one stays. An event that the table does not name changes nothing: late and repeated messages are normal here.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum, StrEnum, auto
from typing import Final

from controlplane.errors import TABLE
from controlplane.model import EndCause, Sandbox, State


class Event(StrEnum):
    """What can happen to a sandbox."""

    QUEUE = "queue"  # its turn in the start queue is awaited
    START = "start"  # the cluster is asked for it
    READY = "ready"  # a command has run in it and it is configured
    WARM = "warm"  # the same of one that a pool keeps: nobody's yet
    CLAIM = "claim"  # the store has bound it to an owner
    RETIRE = "retire"  # its pool does not want it any more; nothing to one that was claimed
    END = "end"  # deleted, expired or died: the cause says which
    FAIL = "fail"  # its start failed or took too long; nothing to one that runs
    CONFIRM = "confirm"  # the cluster has nothing of it any more


class Effect(Enum):
    """What has to be done when a transition is taken, once each."""

    FREE = auto()  # its quota
    ROUTE = auto()  # tell the gateways where it is
    UNROUTE = auto()  # tell the gateways why it ended
    STOP = auto()  # take it off the cluster


@dataclass(frozen=True, slots=True)
class Step:
    """Where an event leads, and what has to be done on the way."""

    state: State
    effects: frozenset[Effect] = frozenset()


_GONE: Final = Step(State.ENDED, frozenset({Effect.FREE, Effect.UNROUTE}))
_ENDS: Final = Step(State.ENDING, frozenset({Effect.FREE, Effect.UNROUTE, Effect.STOP}))

TRANSITIONS: Final[dict[tuple[State, Event], Step]] = {
    (State.REQUESTED, Event.QUEUE): Step(State.QUEUED),
    # Nothing of it is on the cluster yet, so there is nothing to wait for.
    (State.REQUESTED, Event.END): _GONE,
    (State.REQUESTED, Event.FAIL): _GONE,
    (State.QUEUED, Event.START): Step(State.STARTING),
    (State.QUEUED, Event.END): _GONE,
    (State.QUEUED, Event.FAIL): _GONE,
    (State.STARTING, Event.READY): Step(State.RUNNING, frozenset({Effect.ROUTE})),
    (State.STARTING, Event.END): _ENDS,
    (State.STARTING, Event.FAIL): _ENDS,
    # A claim does not wait for the gateways; nobody has a token for it before.
    (State.STARTING, Event.WARM): Step(State.WARM, frozenset({Effect.ROUTE})),
    (State.WARM, Event.CLAIM): Step(State.RUNNING, frozenset({Effect.ROUTE})),
    (State.WARM, Event.END): _ENDS,
    (State.REQUESTED, Event.RETIRE): _GONE,
    (State.QUEUED, Event.RETIRE): _GONE,
    (State.STARTING, Event.RETIRE): _ENDS,
    (State.WARM, Event.RETIRE): _ENDS,
    (State.RUNNING, Event.END): _ENDS,
    (State.ENDING, Event.CONFIRM): Step(State.ENDED),
}


def step(state: State, event: Event) -> Step | None:
    """The transition for ``event`` in ``state``; None when the event changes nothing there."""
    return TRANSITIONS.get((state, event))


@dataclass(frozen=True, slots=True)
class Change:
    """What an event does to a record, besides the state.

    Attributes:
        end: the cause; needed for ``Event.END`` and ``Event.FAIL``.
        ready_at_ms, address, kernel, timings_ms: what the start found out; for ``Event.READY``.
    """

    end: EndCause | None = None
    ready_at_ms: int | None = None
    address: str | None = None
    kernel: str | None = None
    timings_ms: Mapping[str, int] | None = None


NO_CHANGE: Final = Change()


def apply(sandbox: Sandbox, event: Event, change: Change = NO_CHANGE) -> tuple[Sandbox, frozenset[Effect]] | None:
    """The record after ``event``, and what has to be done; None when the event changes nothing.

    A failed start whose code says "later" gives its idempotency key back: the same key may try again. So does one
    that was abandoned: nobody ever had it.
    """
    if event is Event.READY and sandbox.unclaimed:
        event = Event.WARM
    taken = step(sandbox.state, event)
    if taken is None:
        return None
    never_ready = sandbox.ready_at_ms is None
    try_again = change.end is not None and (
        change.end.cause == "create_abandoned" or (never_ready and TABLE[change.end.cause].retry == "later")
    )
    after = replace(
        sandbox,
        state=taken.state,
        version=sandbox.version + 1,
        idempotency_key=None if try_again else sandbox.idempotency_key,
        end=change.end or sandbox.end,
        ready_at_ms=change.ready_at_ms or sandbox.ready_at_ms,
        address=change.address or sandbox.address,
        kernel=change.kernel or sandbox.kernel,
        timings_ms=change.timings_ms or sandbox.timings_ms,
    )
    return after, taken.effects
