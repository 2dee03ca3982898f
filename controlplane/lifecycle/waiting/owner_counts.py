"""How many sandboxes each owner has that take room on nodes, or are about to, as this replica has heard. Pure."""

from collections import Counter


class OwnerCounts:
    """What waits for room takes none yet."""

    def __init__(self) -> None:
        self._owners: dict[str, str] = {}
        self._counts: Counter[str] = Counter()

    def of(self, owner: str) -> int:
        """How many an owner has."""
        return self._counts[owner]

    def add(self, sandbox_id: str, owner: str) -> None:
        """Counts a sandbox once, also if it is added again, perhaps with another owner."""
        self.drop(sandbox_id)
        self._owners[sandbox_id] = owner
        self._counts[owner] += 1

    def drop(self, sandbox_id: str) -> None:
        """Counts a sandbox no more; success if it was not counted."""
        if (owner := self._owners.pop(sandbox_id, None)) is not None:
            self._counts[owner] -= 1
            if not self._counts[owner]:
                del self._counts[owner]
