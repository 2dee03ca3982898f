"""SIGINT: it interrupts a cell, never what this program does between cells or while it sends."""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import _thread


class Interrupts:
    """As a context manager it holds an interrupt back until the end of the block.

    Attributes:
        running: whether a cell runs, which alone is interrupted.
    """

    def __init__(self) -> None:
        self.running = False
        self._main = _thread.get_ident()
        self._held = 0
        self._pending = False

    def begin(self) -> None:
        """A cell begins: take the signal back, whatever an earlier cell has made of it."""
        if _signal.getsignal(_signal.SIGINT) != self._interrupted:
            _signal.signal(_signal.SIGINT, self._interrupted)
        self._pending = False
        self.running = True

    def _interrupted(self, number: int, frame: object) -> None:
        if not self.running:
            return
        if self._held:
            self._pending = True
        else:
            raise KeyboardInterrupt

    def __enter__(self) -> None:
        if _thread.get_ident() == self._main:
            self._held += 1

    def __exit__(self, *_: object) -> None:
        if _thread.get_ident() != self._main:
            return
        self._held -= 1
        if self._pending and not self._held:
            self._pending = False
            if self.running:
                raise KeyboardInterrupt
