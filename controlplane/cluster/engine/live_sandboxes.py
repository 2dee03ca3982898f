"""Tracks which sandboxes should be alive, and which of the starting ones may have died already."""

from collections.abc import Iterator
from contextlib import contextmanager


class LiveSandboxes:
    """The sandboxes that should be alive; written by the cluster, read by its watch.

    A container may exit before the start that created it has returned. While the sandbox's other container does not
    exist yet, the sandbox cannot be judged, so it is marked as unconfirmed and judged at the end of its start.
    """

    def __init__(self) -> None:
        self._alive: set[str] = set()
        self._starting: set[str] = set()
        self._unconfirmed: set[str] = set()

    def __contains__(self, sandbox_id: str) -> bool:
        return sandbox_id in self._alive

    def alive(self) -> tuple[str, ...]:
        """A snapshot of the sandboxes whose start is over."""
        return tuple(self._alive)

    def add(self, sandbox_id: str) -> None:
        """Adds a sandbox that runs."""
        self._alive.add(sandbox_id)

    def discard(self, sandbox_id: str) -> None:
        """Removes a sandbox that is being stopped; unknown ids are ignored."""
        self._alive.discard(sandbox_id)

    @contextmanager
    def starting(self, sandbox_id: str) -> Iterator[None]:
        """Marks a sandbox as starting while the block runs, and as alive after it."""
        self._starting.add(sandbox_id)
        try:
            yield
            self._alive.add(sandbox_id)
        except BaseException:
            self._unconfirmed.discard(sandbox_id)
            raise
        finally:
            self._starting.discard(sandbox_id)

    def mark_unconfirmed(self, sandbox_id: str) -> None:
        """Marks a sandbox as unconfirmed: one of its containers has exited. Does nothing if it is not starting."""
        if sandbox_id in self._starting:
            self._unconfirmed.add(sandbox_id)

    def mark_all_unconfirmed(self) -> None:
        """Marks all starting sandboxes as unconfirmed, since events were missed."""
        self._unconfirmed |= self._starting

    def take_unconfirmed(self, sandbox_id: str) -> bool:
        """Whether a sandbox is unconfirmed and has to be judged; clears the mark."""
        unconfirmed = sandbox_id in self._unconfirmed
        self._unconfirmed.discard(sandbox_id)
        return unconfirmed
