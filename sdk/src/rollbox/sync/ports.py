"""The ports of a sandbox without `await`."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from rollbox import ports
from rollbox.ports import Exposed
from rollbox.sync.loop_thread import run


class Ports:
    """As `rollbox.ports.Ports`."""

    def __init__(self, inner: ports.Ports) -> None:
        """Use `sandbox.ports` instead."""
        self.inner = inner

    def expose(self, port: int, public: bool = False) -> Exposed:
        """As `rollbox.ports.Ports.expose`."""
        return run(self.inner.expose(port, public))

    def close(self, port: int) -> Exposed:
        """As `rollbox.ports.Ports.close`."""
        return run(self.inner.close(port))

    def wait(self, port: int, timeout: float = 60.0) -> None:
        """As `rollbox.ports.Ports.wait`."""
        run(self.inner.wait(port, timeout))

    def connect_tcp(self, port: int) -> PortStream:
        """As `rollbox.ports.Ports.connect_tcp`."""
        return PortStream(run(self.inner.connect_tcp(port)))

    def connect_udp(self, port: int) -> PortDatagrams:
        """As `rollbox.ports.Ports.connect_udp`."""
        return PortDatagrams(run(self.inner.connect_udp(port)))


class PortStream:
    """As `rollbox.ports.PortStream`; a context manager."""

    def __init__(self, inner: ports.PortStream) -> None:
        """Use `sandbox.ports.connect_tcp` instead."""
        self.inner = inner

    def read(self, most_bytes: int = 2**16) -> bytes:
        """As `rollbox.ports.PortStream.read`."""
        return run(self.inner.read(most_bytes))

    def write(self, data: bytes) -> None:
        """As `rollbox.ports.PortStream.write`."""
        run(self.inner.write(data))

    def write_eof(self) -> None:
        """As `rollbox.ports.PortStream.write_eof`."""
        run(self.inner.write_eof())

    def close(self) -> None:
        """Close the connection. Idempotent."""
        run(self.inner.aclose())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class PortDatagrams:
    """As `rollbox.ports.PortDatagrams`; a context manager."""

    def __init__(self, inner: ports.PortDatagrams) -> None:
        """Use `sandbox.ports.connect_udp` instead."""
        self.inner = inner

    def send(self, data: bytes) -> None:
        """As `rollbox.ports.PortDatagrams.send`."""
        run(self.inner.send(data))

    def receive(self) -> bytes:
        """As `rollbox.ports.PortDatagrams.receive`."""
        return run(self.inner.receive())

    def close(self) -> None:
        """Close the connection. Idempotent."""
        run(self.inner.aclose())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
