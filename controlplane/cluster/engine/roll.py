"""Which sandboxes should be alive, and which of those that are being started may have died already."""

from collections.abc import Iterator
from contextlib import contextmanager


class Roll:
    """Kept by the cluster, read by its watch.

    A container may end before the start that made it has returned: while its sibling does not exist yet nobody can
    judge it, so it is noted as doubtful and judged at the end of the start.
    """

    def __init__(self) -> None:
        self._alive: set[str] = set()
        self._starting: set[str] = set()
        self._doubtful: set[str] = set()

    def __contains__(self, sandbox_id: str) -> bool:
        return sandbox_id in self._alive

    def alive(self) -> tuple[str, ...]:
        """Those whose start is over, as of now."""
        return tuple(self._alive)

    def add(self, sandbox_id: str) -> None:
        """It runs."""
        self._alive.add(sandbox_id)

    def discard(self, sandbox_id: str) -> None:
        """It is being stopped; unknown ids are fine."""
        self._alive.discard(sandbox_id)

    @contextmanager
    def starting(self, sandbox_id: str) -> Iterator[None]:
        """Its containers are being made while the block runs; at the end of it, it is alive."""
        self._starting.add(sandbox_id)
        try:
            yield
            self._alive.add(sandbox_id)
        except BaseException:
            self._doubtful.discard(sandbox_id)
            raise
        finally:
            self._starting.discard(sandbox_id)

    def doubt(self, sandbox_id: str) -> None:
        """Something of it was seen to end; of concern only while it is being started."""
        if sandbox_id in self._starting:
            self._doubtful.add(sandbox_id)

    def doubt_all(self) -> None:
        """Nobody saw what happened for a while."""
        self._doubtful |= self._starting

    def take_doubt(self, sandbox_id: str) -> bool:
        """Whether it has to be judged now; answers so once."""
        doubtful = sandbox_id in self._doubtful
        self._doubtful.discard(sandbox_id)
        return doubtful
