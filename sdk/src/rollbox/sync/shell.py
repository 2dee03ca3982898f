"""The shell without `await`."""

from __future__ import annotations

from types import TracebackType

from rollbox import shell as awaited
from rollbox.result import ExecResult
from rollbox.sync.loop_thread import run


class Shell:
    """As `rollbox.Shell`; a context manager."""

    def __init__(self, inner: awaited.Shell) -> None:
        """Use `Sandbox.shell` instead."""
        self.inner = inner

    def run(self, command: str, *, timeout: float | None = None) -> ExecResult:
        """As `rollbox.Shell.run`; Ctrl-C kills the command."""
        return run(self.inner.run(command, timeout=timeout))

    @property
    def ended(self) -> bool:
        """As `rollbox.Shell.ended`."""
        return self.inner.ended

    @property
    def exec_id(self) -> str:
        """Its id among the sandbox's processes."""
        return self.inner.exec_id

    def close(self) -> None:
        """As `rollbox.Shell.aclose`."""
        run(self.inner.aclose())

    def __enter__(self) -> Shell:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
