"""An event loop whose time jumps: waiting costs nothing, and what would wait for ever fails at once."""

import asyncio
import selectors

EPOCH_MS = 1_800_000_000_000


class _JumpingSelector(selectors.DefaultSelector):
    """Never blocks: when nothing is ready, the loop's time moves on to the next timer."""

    loop: "VirtualTimeLoop"

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0 if timeout == 0 else self.loop.wire_s)
        if ready or timeout == 0:
            return ready
        if timeout is None:
            raise RuntimeError("the test waits for something that nobody will ever do")
        self.loop.jump(timeout)
        return []


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """Starts at 0 s; for tests without real I/O.

    With `wire_s` real seconds pass before each jump, and none of them counts: what is on its way between sockets of
    this loop arrives first.
    """

    def __init__(self, wire_s: float = 0.0) -> None:
        self._now_s = 0.0
        self.wire_s = wire_s
        selector = _JumpingSelector()
        selector.loop = self
        super().__init__(selector)

    def time(self) -> float:
        return self._now_s

    def jump(self, by_s: float) -> None:
        """Moves time on."""
        self._now_s += by_s


class VirtualClock:
    """The time of day on a loop with virtual time."""

    def now_ms(self) -> int:
        return EPOCH_MS + round(asyncio.get_running_loop().time() * 1000)
