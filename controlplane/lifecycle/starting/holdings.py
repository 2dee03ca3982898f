"""How many sandboxes each owner has that take room on nodes, as this replica has heard. Pure."""

from collections import Counter
from typing import Final

from controlplane.lifecycle.record.transition import Transition
from controlplane.model import State

_ON_NODES: Final = frozenset({State.STARTING, State.RUNNING})


class Holdings:
    """Follows all transitions; what waits for room takes none yet."""

    def __init__(self) -> None:
        self._owners: dict[str, str] = {}
        self._expected: set[str] = set()  # added, and no transition has said that they start
        self._counts: Counter[str] = Counter()

    def of(self, owner: str) -> int:
        """How many an owner has."""
        return self._counts[owner]

    def on(self, transition: Transition) -> None:
        """Takes a transition in."""
        after = transition.after
        if after.state in _ON_NODES and not after.unclaimed:
            self.add(after.id, after.owner)
            self._expected.discard(after.id)
        elif after.end is not None:
            self.drop(after.id)

    def add(self, sandbox_id: str, owner: str) -> None:
        """Counts a sandbox once, also if it is added again."""
        known = sandbox_id in self._owners and sandbox_id not in self._expected
        self.drop(sandbox_id)
        self._owners[sandbox_id] = owner
        self._counts[owner] += 1
        if not known:
            self._expected.add(sandbox_id)

    def settle(self, sandbox_id: str) -> None:
        """Takes in that a start is over here: one that no transition confirms has not begun, or has ended before."""
        if sandbox_id in self._expected:
            self.drop(sandbox_id)

    def drop(self, sandbox_id: str) -> None:
        """Counts a sandbox no more; success if it was not counted."""
        self._expected.discard(sandbox_id)
        owner = self._owners.pop(sandbox_id, None)
        if owner is not None:
            self._counts[owner] -= 1
            if not self._counts[owner]:
                del self._counts[owner]
