"""How a cell is ended that has no time left: asked first, killed last."""

from __future__ import annotations

import signal

from rollbox._problem import SandboxError
from rollbox.process import Process

# The interpreter alone is interrupted first, so that servers that earlier cells have started live on; then all that it
# has started, since a library may wait for a program with interrupts off (`os.system`); then it is killed. Guesses.
_ALONE_S = 1.0
_ALL_S = 4.0


class Patience:
    """The steps of ending a cell, each when the time of the one before is over.

    Attributes:
        at: the event loop's time of the next step; None: never.
        asked: whether the cell has been interrupted.
        killed: whether the interpreter has been killed.
    """

    def __init__(self, process: Process, at: float | None) -> None:
        self.at = at
        self.asked = False
        self.killed = False
        self._process = process
        self._steps = 0

    async def step(self, now: float) -> None:
        """Take the next step.

        Args:
            now: the event loop's time.
        """
        self._steps += 1
        if self._steps <= 2:
            self.asked = True
            self.at = now + (_ALONE_S if self._steps == 1 else _ALL_S)
            await interrupt(self._process, tree=self._steps == 2)
        else:
            self.killed, self.at = True, None
            await self._process.kill()


async def interrupt(process: Process, *, tree: bool = False) -> None:
    """Send SIGINT; a failure leaves it to the next step."""
    try:
        await process.signal(signal.SIGINT, tree=tree)
    except SandboxError:
        return
