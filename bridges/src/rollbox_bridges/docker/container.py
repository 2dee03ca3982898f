"""One container: a sandbox, and the main process that it is made for."""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple

from rollbox import End, ExecResult, Process, Sandbox, SandboxError, errors
from rollbox_bridges.docker.creating import Settled, Wish
from rollbox_bridges.docker.published import Published
from rollbox_bridges.docker.references import container_id
from rollbox_bridges.docker.running import Ended, ended, not_started
from rollbox_bridges.docker.words import Refusal, not_running
from rollbox_bridges.faults import ENDED, meaning, sentence

_log = logging.getLogger("rollbox_bridges")
State = Literal["created", "running", "exited", "dead", "removed"]
# Of each stream of a main process.
KEPT_BYTES: Final = 2**22
_SIZE: Final = (80, 24)
_ROOT: Final = "0"
_LOST: Final = Ended(137)
# Clients that read the output get the last of it before a container is removed; one that reads nothing holds nobody up.
_READERS_S: Final = 10.0


@dataclass(slots=True)
class Times:
    """When things have happened, Unix seconds; 0: not yet."""

    created: float = field(default_factory=time.time)
    started: float = 0.0
    finished: float = 0.0


class Made(NamedTuple):
    """What a container is made of."""

    wish: Wish
    settled: Settled
    image_id: str


class Container:
    """One container.

    Attributes:
        sandbox, wish, name: of it.
        settled: the wish, with what its image says.
        image_id: of its image.
        id: 64 hexadecimal digits.
        state: of its main process; dead: the sandbox has ended.
        end: of its main process; None: it has not ended.
        error: why it could not be started, or why the sandbox has ended.
        times: of its life.
        exec_id: of its main process, "" before the first start.
        published: its ports.
    """

    def __init__(
        self, sandbox: Sandbox, made_of: Made, name: str, gone: Callable[[Container], Awaitable[None]]
    ) -> None:
        self.sandbox = sandbox
        self.wish, self.settled, self.image_id = made_of
        self.name = name
        self.id = container_id(sandbox.id)
        self.state: State = "created"
        self.end: Ended | None = None
        self.error = ""
        self.times = Times()
        self.exec_id = ""
        self.published = Published(sandbox, self.settled.ports)
        self._gone = gone
        self._main: Process | None = None
        self._watching: asyncio.Task[None] | None = None
        self._changed = asyncio.Condition()
        self._starts = 0
        self._exits = 0
        self._steps = asyncio.Lock()
        self._readers = 0

    @property
    def pid(self) -> int:
        """Of its main process; 0: it does not run."""
        return (self._main.pid or 0) if self._main is not None and self.state == "running" else 0

    @property
    def main(self) -> Process:
        """The main process, for its input and the size of its terminal.

        Raises:
            Refusal: it does not run.
        """
        self.check_runs()
        assert self._main is not None  # noqa: S101 - it runs
        return self._main

    def check_runs(self) -> None:
        """Raise a refusal unless it runs."""
        if self.state != "running":
            raise not_running(self.id, self.error)

    async def start(self) -> bool:
        """Start the main process; returns whether it did not run already.

        Raises:
            Refusal: the command cannot be started, a port is taken, or the sandbox has ended.
        """
        async with self._steps:
            if self.state == "running":
                return False
            if self.state in {"dead", "removed"}:
                raise not_running(self.id, self.error)
            await self.published.open()
            try:
                if self.wish.cwd:
                    await self.sandbox.files.mkdir(self.wish.cwd, user=_ROOT)
                await self._spawn()
            except BaseException:
                await self.published.aclose()
                if self.wish.limits.auto_remove:
                    await self._gone(self)
                raise
            self.end, self.error, self.times.started, self.times.finished = None, "", time.time(), 0.0
            self._starts += 1
            await self._become("running")
            self._watching = asyncio.create_task(self._watch(), name=f"rollbox container {self.name}")
            return True

    async def _spawn(self) -> None:
        wish, argv, self.exec_id = self.wish, self.settled.argv, f"docker-main-{secrets.token_hex(8)}"
        try:
            self._main = await self.sandbox.spawn(
                list(argv),
                cwd=wish.cwd or None,
                # What is typed on a terminal has no end.
                stdin=wish.stdin or wish.tty,
                terminal=(wish.limits.size or _SIZE) if wish.tty else None,
                output_waits=bool(self._readers),
                max_output_bytes=KEPT_BYTES,
                exec_id=self.exec_id,
            )
        except errors.InvalidArgument as error:
            failed = not_started(error, argv, self.settled.cwd, self.settled.user)
            if failed is None:
                raise
            self.end, self.error = Ended(failed[0]), f"failed to create task for container: {failed[1]}"
            raise Refusal(400, self.error) from error
        self._main.detach()

    async def _watch(self) -> None:
        """Wait for the end of the main process, and end what it leaves behind."""
        assert self._main is not None  # noqa: S101 - it was started
        try:
            self.end = ended(await _waited(self._main))
            with suppress(SandboxError):
                await self.sandbox.processes.kill_all()
            await self._over("exited")
        except SandboxError as error:
            self.end, self.error = _LOST, sentence(error)
            await self._over("dead")
        if self.wish.limits.auto_remove:
            await self._gone(self)

    async def _over(self, state: State) -> None:
        self.times.finished = time.time()
        await self.published.aclose()
        if self._main is not None:
            await self._main.aclose()
        self._exits += 1
        await self._become(state)

    async def _become(self, state: State) -> None:
        async with self._changed:
            self.state = state
            self._changed.notify_all()

    async def lost(self, error: SandboxError) -> None:
        """Hear from a call that the sandbox has ended."""
        if error.code in ENDED and self.state in {"created", "exited"}:
            self.end, self.error = self.end or _LOST, sentence(error)
            await self._become("dead")

    async def ended(self, end: End) -> None:
        """Hear of the record that the sandbox has ended."""
        self.end, self.error = self.end or _LOST, meaning(end)
        await self._become("dead")

    async def signal(self, number: int) -> None:
        """Send a signal to the main process.

        Raises:
            Refusal: it does not run.
        """
        with suppress(errors.Conflict, errors.ExecNotFound):
            await self.main.signal(number)

    async def stop(self, number: int, within_s: float | None) -> bool:
        """End the main process: by a signal, then by force; returns whether it ran.

        Args:
            number: of the signal.
            within_s: seconds between the two; None: as long as it takes.
        """
        async with self._steps:
            if self.state != "running":
                return False
            with suppress(TimeoutError, errors.Conflict, errors.ExecNotFound):
                async with asyncio.timeout(within_s):
                    await self.main.signal(number)
                    await self._until(lambda: self.state != "running")
            if self.state == "running":
                with suppress(errors.ExecNotFound):
                    await self.main.kill()
                await self._until(lambda: self.state != "running")
            return True

    async def exited(self) -> Ended:
        """Wait until it does not run."""
        await self._until(lambda: self.state != "running")
        return self.end or Ended(0)

    async def next_exit(self) -> Ended:
        """Wait for the next end of a main process."""
        exits = self._exits
        await self._until(lambda: self._exits > exits or self.state in {"dead", "removed"})
        return self.end or Ended(0)

    async def removed(self) -> Ended:
        """Wait until it is removed."""
        await self._until(lambda: self.state == "removed")
        return self.end or Ended(0)

    async def runs(self) -> bool:
        """Wait until its main process is started, unless it runs; returns False where that cannot be any more."""
        starts = self._starts
        await self._until(
            lambda: self.state in {"running", "dead", "removed"} or self._starts > starts,
        )
        return self.state not in {"dead", "removed"}

    async def _until(self, done: Callable[[], bool]) -> None:
        async with self._changed:
            await self._changed.wait_for(done)

    @asynccontextmanager
    async def reader(self) -> AsyncIterator[None]:
        """Count a client that reads the output of the main process: a removal waits for it, ten seconds at most."""
        self._readers += 1
        try:
            yield
        finally:
            self._readers -= 1
            async with self._changed:
                self._changed.notify_all()

    async def remove(self) -> None:
        """End the sandbox, with all that runs in it.

        Raises:
            SandboxError: the platform did not take it.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(_READERS_S if self.state == "exited" else 0):
                await self._until(lambda: not self._readers)
        await self.sandbox.delete()
        await self.aclose()
        self.end = self.end or Ended(137)
        self._exits += 1
        await self._become("removed")

    async def aclose(self) -> None:
        """Close its connections; the sandbox goes on."""
        if self._watching is not None and self._watching is not asyncio.current_task():
            self._watching.cancel()
            await asyncio.wait([self._watching])
        await self.published.aclose()
        if self._main is not None:
            await self._main.aclose()


async def _waited(process: Process) -> ExecResult:
    """The end of a process; a platform that does not answer for a while is asked again."""
    while True:
        try:
            return await process.wait()
        except errors.StreamInterrupted as error:
            _log.warning("the main process %s is asked for again: %s", process.exec_id, error)
