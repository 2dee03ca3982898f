"""How a sandbox may change: one pure table from (state, event) to state, and what each event does to the record.

``requested -> queued -> starting [-> warm] -> running -> ending -> ended``; an end is legal in every state, and the
first one stays. An event that the table does not name changes nothing: late and repeated messages are normal here.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Final

from controlplane.errors import TABLE
from controlplane.model.sandbox import EndCause, Pulled, Sandbox, State
from controlplane.model.timeline import with_entry


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
        image_digest, image_ran, image_stale, image_pulled, image_pulled_why: what the start begins with; for
            ``Event.START``.
        wish, claimed_at_ms: the record of the create that gets it, and when; needed for ``Event.CLAIM``.
        ready_at_ms, address, kernel, timings_ms: what the start found out; for ``Event.READY``.
    """

    end: EndCause | None = None
    ready_at_ms: int | None = None
    address: str | None = None
    kernel: str | None = None
    timings_ms: Mapping[str, int] | None = None
    image_digest: str = ""
    image_ran: str = ""
    image_stale: bool = False
    image_pulled: Pulled = ""
    image_pulled_why: str = ""
    wish: Sandbox | None = None
    claimed_at_ms: int = 0


NO_CHANGE: Final = Change()
# The fields of the create's record that a claim sets on a warm sandbox.
BOUND: Final = (
    "owner",
    "spec",
    "expires_at_ms",
    "fingerprint",
    "idempotency_key",
    "callers",
    "settings_digest",
    "egress",
)


def claim_fields(wish: Sandbox, at_ms: int) -> dict[str, Any]:
    """The fields that a claim sets on a warm sandbox, besides its version; all others stay as they are.

    ``apply`` takes them, and the store of many replicas, whose scripts join them with the fields that stay.

    Args:
        wish: the record of the create that gets it.
        at_ms: when it was claimed (Unix ms).
    """
    bound = {name: getattr(wish, name) for name in BOUND}
    return {**bound, "state": TRANSITIONS[State.WARM, Event.CLAIM], "claimed_at_ms": at_ms, "claim_id": wish.id}


def apply(sandbox: Sandbox, event: Event, change: Change = NO_CHANGE, at_ms: int | None = None) -> Sandbox:
    """The record after ``event``; the same object when the event changes nothing in its state.

    A failed start whose code says "later" gives its idempotency key back: the same key may try again. So does one
    that was abandoned: no client ever had it.

    Args:
        sandbox: as it is.
        event: what has happened.
        change: what it does to the record besides the state.
        at_ms: when (Unix time), for the timeline; None: it gets no entry. A claim never has one: the store makes it in
            one step with the whole change.

    Raises:
        ValueError: a claim without the record of its create.
    """
    if event is Event.READY and sandbox.unclaimed:
        event = Event.WARM
    state = TRANSITIONS.get((sandbox.state, event))
    if state is None:
        return sandbox
    if event is Event.CLAIM:
        if change.wish is None:
            raise ValueError("a claim needs the record of its create")
        return replace(sandbox, version=sandbox.version + 1, **claim_fields(change.wish, change.claimed_at_ms))
    never_ready = sandbox.ready_at_ms is None
    try_again = change.end is not None and (
        change.end.cause == "create_abandoned" or (never_ready and TABLE[change.end.cause].retry == "later")
    )
    end = change.end or sandbox.end
    word = end.cause if end is not None and event is not Event.CONFIRM else event
    return replace(
        sandbox,
        state=state,
        timeline=sandbox.timeline if at_ms is None else with_entry(sandbox.timeline, at_ms, state, word),
        version=sandbox.version + 1,
        idempotency_key=None if try_again else sandbox.idempotency_key,
        end=end,
        ready_at_ms=change.ready_at_ms or sandbox.ready_at_ms,
        address=change.address or sandbox.address,
        kernel=change.kernel or sandbox.kernel,
        timings_ms=change.timings_ms or sandbox.timings_ms,
        image_digest=change.image_digest or sandbox.image_digest,
        image_ran=change.image_ran or sandbox.image_ran,
        image_stale=change.image_stale or sandbox.image_stale,
        image_pulled=change.image_pulled or sandbox.image_pulled,
        image_pulled_why=change.image_pulled_why or sandbox.image_pulled_why,
    )
