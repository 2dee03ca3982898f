"""What is to be done with a sandbox on a node that is drained, or is not drained any more. Pure."""

from enum import Enum, auto

from controlplane.cluster import Drain
from controlplane.model import Sandbox


class Step(Enum):
    """What is to be done."""

    NOTHING = auto()
    RETIRE = auto()  # nobody has claimed it: its pool starts another one elsewhere
    TELL = auto()  # its record gets a deadline, another one, or none
    END = auto()


def step(sandbox: Sandbox, drain: Drain | None, now_ms: int) -> tuple[Step, int | None]:
    """What is to be done, and the deadline that the record is to have (Unix ms; None: none).

    Args:
        sandbox: its record.
        drain: of its node; None: it is not drained.
        now_ms: Unix time.
    """
    known_ms = sandbox.draining_at_ms
    if not sandbox.state.counted:
        return Step.NOTHING, known_ms
    if drain is None:
        return (Step.NOTHING if known_ms is None else Step.TELL), None
    if sandbox.unclaimed:
        return Step.RETIRE, known_ms
    at_ms = drain.until_ms
    if drain.estimated and known_ms is not None and not sandbox.draining_exact:
        # Another replica, or this one before a restart, has seen the mark earlier.
        at_ms = min(at_ms, known_ms)
    if at_ms != known_ms:
        # Told before it is ended, also where the deadline has passed already.
        return Step.TELL, at_ms
    return (Step.END if at_ms <= now_ms else Step.NOTHING), at_ms
