"""The interpreter without `await`."""

from __future__ import annotations

from types import TracebackType
from typing import Unpack

from rollbox import interpreter as awaited
from rollbox.interpreter.cell import Cell, CellEvent, Variable
from rollbox.interpreter.options import CellOptions
from rollbox.sync.loop_thread import Iteration, run


class Interpreter:
    """As `rollbox.Interpreter`; a context manager that kills it at the end."""

    def __init__(self, inner: awaited.Interpreter) -> None:
        """Use `Sandbox.interpreter` instead."""
        self.inner = inner

    @property
    def version(self) -> str:
        """As `rollbox.Interpreter.version`."""
        return self.inner.version

    @property
    def exec_id(self) -> str | None:
        """As `rollbox.Interpreter.exec_id`."""
        return self.inner.exec_id

    def run(self, code: str, **options: Unpack[CellOptions]) -> Cell:
        """As `rollbox.Interpreter.run`; Ctrl-C interrupts the cell, unless `on_disconnect` lets it go on."""
        return run(self.inner.run(code, **options))

    def stream(self, code: str, **options: Unpack[CellOptions]) -> Iteration[CellEvent]:
        """As `rollbox.Interpreter.stream`; Ctrl-C, or a limit of a step, ends the iteration and interrupts the cell."""
        return Iteration(self.inner.stream(code, **options))

    def variables(self, *, timeout: float | None = 10) -> list[Variable]:
        """As `rollbox.Interpreter.variables`."""
        return run(self.inner.variables(timeout=timeout))

    def interrupt(self) -> None:
        """As `rollbox.Interpreter.interrupt`; from another thread than that which runs the cell."""
        run(self.inner.interrupt())

    def restart(self) -> None:
        """As `rollbox.Interpreter.restart`."""
        run(self.inner.restart())

    def close(self) -> None:
        """As `rollbox.Interpreter.aclose`."""
        run(self.inner.aclose())

    def __enter__(self) -> Interpreter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
