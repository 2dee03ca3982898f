"""Commands as verifiers streams them."""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator, Callable

from verifiers.v1.errors import SandboxError
from verifiers.v1.runtimes.base import RuntimeProcess

import rollbox
from rollbox.errors import Conflict, ExecNotFound
from rollbox_integrations import outcome
from rollbox_integrations.outcome import Outcome

Told = Callable[[rollbox.SandboxError], SandboxError]


class StreamedProcess(RuntimeProcess):
    """A command that runs.

    Args:
        process: of the SDK.
        told: says a failure in verifiers' words.
    """

    def __init__(self, process: rollbox.Process, told: Told) -> None:
        self._process = process
        self._told = told
        self.stdout = self._bytes(process.stdout)
        self.stderr = self._bytes(process.stderr)

    async def _bytes(self, stream: rollbox.OutputStream) -> AsyncIterator[bytes]:
        try:
            async for data in stream:
                yield data
        except rollbox.SandboxError as error:
            # A workload that has ended its own sandbox has ended its output; `wait` says so.
            if outcome.died(error) is None:
                raise self._told(error) from error

    async def write(self, data: bytes) -> None:
        """See verifiers."""
        try:
            await self._process.stdin.write(data)
        except rollbox.SandboxError as error:
            raise self._told(error) from error

    async def wait(self) -> int:
        """See verifiers; 128 and its number for a signal."""
        try:
            return _status(await self._process.wait())
        except rollbox.SandboxError as error:
            if (died := outcome.died(error)) is not None:
                return died.status
            raise self._told(error) from error

    async def poll(self) -> int | None:
        """See verifiers."""
        try:
            return _status(await self._process.wait(timeout=_LOOK_S))
        except TimeoutError:
            return None
        except rollbox.SandboxError as error:
            if (died := outcome.died(error)) is not None:
                return died.status
            raise self._told(error) from error

    async def terminate(self) -> None:
        """See verifiers."""
        await self._end(lambda: self._process.signal(signal.SIGTERM, tree=True))

    async def kill(self) -> None:
        """See verifiers: it and all that it has started."""
        await self._end(self._process.kill)

    async def _end(self, end: Callable[[], object]) -> None:
        try:
            await end()  # type: ignore[misc]
        except (Conflict, ExecNotFound):
            return
        except rollbox.SandboxError as error:
            raise self._told(error) from error


class EndedProcess(RuntimeProcess):
    """A command that was not started, with a shell's status and words."""

    def __init__(self, ended: Outcome) -> None:
        self._status = ended.status
        self.stdout = _of(b"")
        self.stderr = _of(ended.stderr)

    async def write(self, data: bytes) -> None:
        """See verifiers: nothing reads it."""

    async def wait(self) -> int:
        """See verifiers."""
        return self._status

    async def poll(self) -> int | None:
        """See verifiers."""
        return self._status

    async def terminate(self) -> None:
        """See verifiers: it has ended."""

    async def kill(self) -> None:
        """See verifiers: it has ended."""


# A look at what has come: the connection is there since the command was started or read.
_LOOK_S = 0.05


def _status(result: rollbox.ExecResult) -> int:
    # One that was cancelled here was killed: by `kill`, or with its client.
    return outcome.KILLED if result.end == "cancelled" else outcome.ended(result).status


async def _of(data: bytes) -> AsyncIterator[bytes]:
    if data:
        yield data
