"""What sandboxes there are, by state and owner, as this replica has heard: for the metrics. Pure."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from heapq import nsmallest
from typing import Final

from controlplane.lifecycle.record.transition import Transition
from controlplane.model import Sandbox, State

# Whoever is in one of these for so long is either stuck, or its next change was not heard of here.
DOUBTED_AFTER_MS: Final = 300_000
DOUBTED_AT_ONCE: Final = 8
_PASSING: Final = frozenset({State.REQUESTED, State.QUEUED, State.STARTING, State.ENDING})


@dataclass(frozen=True, slots=True)
class _Known:
    state: State
    since_ms: int
    owner: str


class Population:
    """Follows all transitions. Cost: O(1) for each, O(n) for each question."""

    def __init__(self) -> None:
        self._known: dict[str, _Known] = {}

    def on(self, transition: Transition) -> None:
        """Takes a transition in, made here or elsewhere."""
        after = transition.after
        if after.state is State.ENDED:
            self._known.pop(after.id, None)
        else:
            owner = "" if after.unclaimed or after.end is not None else after.owner
            self._known[after.id] = _Known(after.state, _since_ms(after), owner)

    def forget(self, sandbox_id: str) -> None:
        """Says that there is no such record any more."""
        self._known.pop(sandbox_id, None)

    def oldest_ms(self, now_ms: int) -> Mapping[State, int]:
        """The age of the oldest sandbox of each state that one is in."""
        first: dict[State, int] = {}
        for one in self._known.values():
            first[one.state] = min(one.since_ms, first.get(one.state, one.since_ms))
        return {state: max(0, now_ms - since_ms) for state, since_ms in first.items()}

    def owners(self) -> Mapping[str, int]:
        """Sandboxes of each owner that have not begun to end."""
        return Counter(one.owner for one in self._known.values() if one.owner)

    def doubtful(self, now_ms: int) -> Sequence[str]:
        """The oldest that should have changed long ago, a few of them: what the store says of them is to be read."""
        late = [
            (one.since_ms, sandbox_id)
            for sandbox_id, one in self._known.items()
            if one.state in _PASSING and now_ms - one.since_ms > DOUBTED_AFTER_MS
        ]
        return [sandbox_id for _, sandbox_id in nsmallest(DOUBTED_AT_ONCE, late)]


def _since_ms(sandbox: Sandbox) -> int:
    return sandbox.created_at_ms if sandbox.end is None else sandbox.end.at_ms
