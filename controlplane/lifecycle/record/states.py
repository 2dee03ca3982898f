"""How a sandbox may change: one pure table from (state, event) to state, and what follows from a change.

``requested -> queued -> starting [-> warm] -> running -> ending -> ended``; an end is legal in every state, and the
first one stays. An event that the table does not name changes nothing: late and repeated messages are normal here.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum, StrEnum, auto
from typing import Final, Self

from controlplane.errors import TABLE
from controlplane.model import UP, EndCause, Sandbox, State


class Event(StrEnum):
    """What can happen to a sandbox."""

    QUEUE = "queue"  # it waits for its turn in the start queue
    START = "start"  # the cluster is asked for it
    READY = "ready"  # a command has run in it and it is configured
    WARM = "warm"  # the same for a sandbox that a pool keeps: it has no owner yet
    CLAIM = "claim"  # the store has bound it to an owner
    RETIRE = "retire"  # its pool does not want it any more; changes nothing once it is claimed
    END = "end"  # deleted, expired or died: the cause says which
    FAIL = "fail"  # its start failed or took too long; changes nothing once it runs
    CONFIRM = "confirm"  # the cluster has confirmed that nothing of it is left


class Effect(Enum):
    """What follows from a transition. The part that is responsible subscribes to the ledger; repeating one is safe."""

    FREE = auto()  # its quota can be used by others
    SETTLE = auto()  # its start is over, for better or worse: another one may begin
    ROUTE = auto()  # gateways are told where it is, and which of its ports are public
    UNROUTE = auto()  # gateways are told why it ended
    STOP = auto()  # it is taken off the cluster


TRANSITIONS: Final[dict[tuple[State, Event], State]] = {
    (State.REQUESTED, Event.QUEUE): State.QUEUED,
    # Nothing of it is on the cluster yet, so there is no confirmation to wait for.
    (State.REQUESTED, Event.END): State.ENDED,
    (State.REQUESTED, Event.FAIL): State.ENDED,
    (State.REQUESTED, Event.RETIRE): State.ENDED,
    (State.QUEUED, Event.START): State.STARTING,
    (State.QUEUED, Event.END): State.ENDED,
    (State.QUEUED, Event.FAIL): State.ENDED,
    (State.QUEUED, Event.RETIRE): State.ENDED,
    (State.STARTING, Event.READY): State.RUNNING,
    (State.STARTING, Event.WARM): State.WARM,
    (State.STARTING, Event.END): State.ENDING,
    (State.STARTING, Event.FAIL): State.ENDING,
    (State.STARTING, Event.RETIRE): State.ENDING,
    (State.WARM, Event.CLAIM): State.RUNNING,
    (State.WARM, Event.END): State.ENDING,
    (State.WARM, Event.RETIRE): State.ENDING,
    (State.RUNNING, Event.END): State.ENDING,
    (State.ENDING, Event.CONFIRM): State.ENDED,
}


@dataclass(frozen=True, slots=True)
class Change:
    """What an event does to a record, besides the state.

    Attributes:
        end: the cause; needed for ``Event.END``, ``Event.FAIL`` and ``Event.RETIRE``.
        image_digest: what the start begins with; for ``Event.START``.
        ready_at_ms, address, kernel, timings_ms: what the start found out; for ``Event.READY``.
    """

    end: EndCause | None = None
    ready_at_ms: int | None = None
    address: str | None = None
    kernel: str | None = None
    timings_ms: Mapping[str, int] | None = None
    image_digest: str = ""


NO_CHANGE: Final = Change()


def apply(sandbox: Sandbox, event: Event, change: Change = NO_CHANGE) -> Sandbox:
    """The record after ``event``; the same object when the event changes nothing in its state.

    A failed start whose code says "later" gives its idempotency key back: the same key may try again. So does one
    that was abandoned: no client ever had it.
    """
    if event is Event.READY and sandbox.unclaimed:
        event = Event.WARM
    state = TRANSITIONS.get((sandbox.state, event))
    if state is None:
        return sandbox
    never_ready = sandbox.ready_at_ms is None
    try_again = change.end is not None and (
        change.end.cause == "create_abandoned" or (never_ready and TABLE[change.end.cause].retry == "later")
    )
    return replace(
        sandbox,
        state=state,
        version=sandbox.version + 1,
        idempotency_key=None if try_again else sandbox.idempotency_key,
        end=change.end or sandbox.end,
        ready_at_ms=change.ready_at_ms or sandbox.ready_at_ms,
        address=change.address or sandbox.address,
        kernel=change.kernel or sandbox.kernel,
        timings_ms=change.timings_ms or sandbox.timings_ms,
        image_digest=change.image_digest or sandbox.image_digest,
    )


@dataclass(frozen=True, slots=True)
class Transition:
    """One change of a record, as the ledger publishes it.

    Attributes:
        before: the record until then; None where only the outcome is known: just admitted, claimed or adopted, read
            again, or stored by another replica.
        after: the record from then on.
        effects: what follows from it; of an unknown ``before``, all that may not have been done yet.
        here: whether this replica has made the change.
    """

    before: Sandbox | None
    after: Sandbox
    effects: frozenset[Effect]
    here: bool

    @classmethod
    def of(cls, before: Sandbox | None, after: Sandbox, *, here: bool) -> Self:
        """The transition between two records of one sandbox."""
        return cls(before, after, effects_of(before, after), here)


def effects_of(before: Sandbox | None, after: Sandbox) -> frozenset[Effect]:
    """What follows from a change. The only place that derives routes, stops and freed quotas from states."""
    found = set[Effect]()
    if not after.state.counted and (before is None or before.state.counted):
        found.add(Effect.FREE)
    if not after.state.unready and (before is None or before.state.unready):
        found.add(Effect.SETTLE)
    if after.state in UP and (before is None or _route(before) != _route(after)):
        found.add(Effect.ROUTE)
    if after.end is not None and (before is None or before.end is None):
        found.add(Effect.UNROUTE)
    if after.state is State.ENDING and (before is None or before.state is not State.ENDING):
        found.add(Effect.STOP)
    return frozenset(found)


def _route(sandbox: Sandbox) -> tuple[object, ...]:
    """What gateways know of it while it is up."""
    return (sandbox.state in UP, sandbox.address, sandbox.generation, sandbox.owner, sandbox.ports_revision)
