"""An event loop whose time jumps: waiting costs nothing, and what would wait for ever fails at once."""

import asyncio
import fcntl
import selectors
import struct
import termios

EPOCH_MS = 1_800_000_000_000
# Of linux/sockios.h: bytes that a TCP socket has not sent yet.
_SIOCOUTQNSD = 0x894B
# As often a wire is waited for whose other end confirms nothing: it may have been cut.
_ROUNDS = 40


class _JumpingSelector(selectors.DefaultSelector):
    """Never blocks: when nothing is ready, the loop's time moves on to the next timer."""

    loop: "VirtualTimeLoop"

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if timeout != 0 and not ready and self.loop.wire_s:
            ready = self._arriving()
        if ready or timeout == 0:
            return ready
        if timeout is None:
            raise RuntimeError("the test waits for something that nobody will ever do")
        self.loop.jump(timeout)
        return []

    def _arriving(self) -> list[tuple[selectors.SelectorKey, int]]:
        """What was on its way: a busy kernel delivers late, and a socket may wait for a confirmation."""
        for _ in range(_ROUNDS):
            ready = super().select(self.loop.wire_s)
            if ready or not any(_unconfirmed(key.fd) for key in self.get_map().values()):
                return ready
        return []


def _unconfirmed(fd: int) -> bool:
    """Whether bytes have left this socket that its peer's kernel has not confirmed; False for all but TCP sockets."""
    try:
        left, unsent = (
            struct.unpack("i", fcntl.ioctl(fd, what, bytes(4)))[0] for what in (termios.TIOCOUTQ, _SIOCOUTQNSD)
        )
    except OSError:
        return False
    return bool(left > unsent)


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """Starts at 0 s; for tests without real I/O.

    With `wire_s` real seconds pass before each jump, and more where the kernel has not delivered everything yet; none
    of them counts: what is on its way between sockets of this loop arrives first.
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
