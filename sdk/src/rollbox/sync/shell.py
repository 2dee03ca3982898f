"""The shells without `await`."""

from __future__ import annotations

import re
from types import TracebackType
from typing import Generic, Self, TypeVar, Unpack

from rollbox import shell as awaited
from rollbox import terminal_shell
from rollbox.request import ShellRunOptions
from rollbox.result import ShellResult
from rollbox.shell_session import ShellSession
from rollbox.sync.loop_thread import run

_Inner = TypeVar("_Inner", bound=ShellSession)


class _Session(Generic[_Inner]):
    """What both shells have."""

    def __init__(self, inner: _Inner) -> None:
        """Use `Sandbox.shell` instead."""
        self.inner = inner

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

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Shell(_Session[awaited.Shell]):
    """As `rollbox.Shell`; a context manager."""

    def run(self, command: str, **options: Unpack[ShellRunOptions]) -> ShellResult:
        """As `rollbox.Shell.run`; Ctrl-C kills the command."""
        return run(self.inner.run(command, **options))


class TerminalShell(_Session[terminal_shell.TerminalShell]):
    """As `rollbox.TerminalShell`; a context manager."""

    def run(self, command: str, *, timeout: float | None = None, check: bool = False) -> ShellResult:
        """As `rollbox.TerminalShell.run`; Ctrl-C kills the command."""
        return run(self.inner.run(command, timeout=timeout, check=check))

    def send(self, text: str) -> None:
        """As `rollbox.TerminalShell.send`."""
        run(self.inner.send(text))

    def expect(self, pattern: str | re.Pattern[str] | None, *, timeout: float | None = 30, prompt: bool = False) -> str:
        """As `rollbox.TerminalShell.expect`."""
        return run(self.inner.expect(pattern, timeout=timeout, prompt=prompt))

    def interrupt(self, *, timeout: float = 5) -> str:
        """As `rollbox.TerminalShell.interrupt`."""
        return run(self.inner.interrupt(timeout=timeout))
