"""Processes without `await`."""

from __future__ import annotations

from types import TracebackType

from rollbox import process as awaited
from rollbox.process import ExecSummary, Gap
from rollbox.result import ExecResult
from rollbox.sync.loop_thread import Iteration, run


class OutputStream:
    """As `rollbox.OutputStream`: an iterator of bytes."""

    def __init__(self, inner: awaited.OutputStream) -> None:
        """Use `Process.stdout` or `Process.stderr` instead."""
        self.inner = inner

    def __iter__(self) -> Iteration[bytes]:
        return Iteration(self.inner)

    def next_bytes(self, *, timeout: float | None = None) -> bytes:
        """As `rollbox.OutputStream.next_bytes`."""
        return run(self.inner.next_bytes(timeout=timeout))

    def read(self, *, timeout: float | None = None) -> bytes:
        """As `rollbox.OutputStream.read`."""
        return run(self.inner.read(timeout=timeout))

    def readline(self, *, timeout: float | None = None) -> str | None:
        """As `rollbox.OutputStream.readline`."""
        return run(self.inner.readline(timeout=timeout))

    def text(self) -> Iteration[str]:
        """As `rollbox.OutputStream.text`."""
        return Iteration(self.inner.text())

    def lines(self) -> Iteration[str]:
        """As `rollbox.OutputStream.lines`."""
        return Iteration(self.inner.lines())

    @property
    def gaps(self) -> list[Gap]:
        """What was lost so far."""
        return self.inner.gaps

    @property
    def offset(self) -> int:
        """The offset of the next byte to read."""
        return self.inner.offset


class StdinWriter:
    """As `rollbox.StdinWriter`."""

    def __init__(self, inner: awaited.StdinWriter) -> None:
        """Use `Process.stdin` instead."""
        self.inner = inner

    def write(self, data: bytes | str) -> None:
        """As `rollbox.StdinWriter.write`."""
        run(self.inner.write(data))

    def write_eof(self) -> None:
        """As `rollbox.StdinWriter.write_eof`."""
        run(self.inner.write_eof())

    def drain(self) -> None:
        """As `rollbox.StdinWriter.drain`."""
        run(self.inner.drain())


class Process:
    """As `rollbox.Process`; a context manager that kills at the end unless `detach()` was called."""

    def __init__(self, inner: awaited.Process) -> None:
        """Use `Sandbox.spawn` or `Processes.attach` instead."""
        self.inner = inner
        self.stdout = OutputStream(inner.stdout)
        self.stderr = OutputStream(inner.stderr)
        self.stdin = StdinWriter(inner.stdin)

    @property
    def exec_id(self) -> str:
        """Its id."""
        return self.inner.exec_id

    @property
    def pid(self) -> int | None:
        """Its process id in the sandbox; None after `attach`."""
        return self.inner.pid

    @property
    def result(self) -> ExecResult | None:
        """As `rollbox.Process.result`."""
        return self.inner.result

    @property
    def ended(self) -> bool:
        """As `rollbox.Process.ended`."""
        return self.inner.ended

    def wait(self, *, timeout: float | None = None) -> ExecResult:
        """As `rollbox.Process.wait`."""
        return run(self.inner.wait(timeout=timeout))

    def read_both(self) -> tuple[bytes, bytes]:
        """As `rollbox.Process.read_both`."""
        return run(self.inner.read_both())

    def signal(self, number: int, *, tree: bool = False) -> None:
        """As `rollbox.Process.signal`."""
        run(self.inner.signal(number, tree=tree))

    def kill(self) -> None:
        """As `rollbox.Process.kill`."""
        run(self.inner.kill())

    def resize(self, columns: int, rows: int) -> None:
        """As `rollbox.Process.resize`."""
        run(self.inner.resize(columns, rows))

    def detach(self) -> str:
        """As `rollbox.Process.detach`."""
        return self.inner.detach()

    def close(self) -> None:
        """As `rollbox.Process.aclose`."""
        run(self.inner.aclose())

    def __enter__(self) -> Process:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        run(self.inner.__aexit__(kind, error, trace))

    def __repr__(self) -> str:
        return repr(self.inner)


class Processes:
    """As `rollbox.Processes`."""

    def __init__(self, inner: awaited.Processes) -> None:
        """Use `sandbox.processes` instead."""
        self.inner = inner

    def list(self) -> list[ExecSummary]:
        """As `rollbox.Processes.list`."""
        return run(self.inner.list())

    def kill_all(self, *, timeout: float = 30) -> int:
        """As `rollbox.Processes.kill_all`."""
        return run(self.inner.kill_all(timeout=timeout))

    def attach(self, exec_id: str, *, stdout_offset: int = 0, stderr_offset: int = 0) -> Process:
        """As `rollbox.Processes.attach`."""
        attaching = self.inner.attach(exec_id, stdout_offset=stdout_offset, stderr_offset=stderr_offset)
        return Process(run(attaching))
