"""Commands that clients run in containers beside the main process."""

from __future__ import annotations

import secrets
from collections import OrderedDict
from typing import Final

from rollbox import Process, errors
from rollbox_bridges.docker.container import Container
from rollbox_bridges.docker.running import Ended, ExecWish, ended, not_started
from rollbox_bridges.docker.words import Refusal

_SIZE: Final = (80, 24)
_KEPT_BYTES: Final = 2**22
# Beyond so many, those that were created first and do not run are forgotten.
_MOST: Final = 10_000


class NotStartedError(Exception):
    """A command could not be started: what its client is told in place of its output."""


class Exec:
    """One command.

    Attributes:
        id: 64 hexadecimal digits, also at the platform.
        container, wish: of it.
        process: once it was started.
        end: once it has ended.
    """

    def __init__(self, container: Container, wish: ExecWish) -> None:
        self.id = secrets.token_hex(32)
        self.container = container
        self.wish = wish
        self.process: Process | None = None
        self.end: Ended | None = None
        self._begun = False

    @property
    def running(self) -> bool:
        """Whether it runs, as far as is known."""
        return self.process is not None and self.end is None and self.container.state == "running"

    @property
    def code(self) -> int | None:
        """Its exit code; None: it has not ended."""
        return None if self.end is None else self.end.code

    @property
    def pid(self) -> int:
        """In the container; 0: it has not begun."""
        return 0 if self.process is None else self.process.pid or 0

    async def start(self, *, detached: bool, size: tuple[int, int] | None) -> Process:
        """Start it, once.

        Args:
            detached: nobody reads its output.
            size: of its terminal.

        Raises:
            Refusal: it was started, or its container does not run.
            NotStartedError: it cannot be started.
            SandboxError: as `Sandbox.spawn`.
        """
        self.container.check_runs()
        if self._begun:
            raise Refusal(409, f"exec {self.id} has already been started")
        self._begun = True
        wish, main = self.wish, self.container.wish
        cwd = wish.cwd or main.cwd
        try:
            self.process = await self.container.sandbox.spawn(
                list(wish.argv),
                cwd=cwd or None,
                env=wish.env or None,
                user=wish.user or None,
                stdin=wish.tty or (wish.stdin and not detached),
                terminal=(size or wish.size or _SIZE) if wish.tty else None,
                output_waits=not detached,
                max_output_bytes=_KEPT_BYTES,
                exec_id=self.id,
            )
        except errors.InvalidArgument as error:
            failed = not_started(error, wish.argv, cwd, wish.user or self.container.settled.user)
            if failed is None:
                raise
            self.end = Ended(failed[0])
            raise NotStartedError(f"OCI runtime exec failed: exec {failed[1]}") from error
        self.process.detach()
        return self.process

    async def look(self) -> None:
        """Ask whether it has ended, unless that is known.

        Raises:
            SandboxError: the platform does not answer.
        """
        if self.process is None or self.end is not None:
            return
        if self.process.result is not None:
            self.end = ended(self.process.result)
            return
        if self.container.state != "running":
            self.end = Ended(137)
            return
        listed = {one.exec_id: one for one in await self.container.sandbox.processes.list()}
        found = listed.get(self.id)
        if found is None:
            self.end = Ended(137)
        elif not found.running:
            again = await self.container.sandbox.processes.attach(
                self.id, stdout_offset=found.stdout_bytes, stderr_offset=found.stderr_bytes
            )
            again.detach()
            async with again:
                self.end = ended(await again.wait())

    async def aclose(self) -> None:
        """Close its connection; the command goes on."""
        if self.process is not None:
            await self.process.aclose()


class Execs:
    """The execs of one bridge."""

    def __init__(self) -> None:
        self._all: OrderedDict[str, Exec] = OrderedDict()

    def create(self, container: Container, wish: ExecWish) -> Exec:
        """Know a command that is to be started.

        Raises:
            Refusal: the container does not run.
        """
        container.check_runs()
        made = Exec(container, wish)
        self._all[made.id] = made
        if len(self._all) > _MOST:
            self._forget()
        return made

    def get(self, text: str) -> Exec:
        """Find one.

        Raises:
            Refusal: there is none.
        """
        found = self._all.get(text)
        if found is None:
            raise Refusal(404, f"No such exec instance: {text[:100]}")
        return found

    def _forget(self) -> None:
        over = len(self._all) - _MOST
        for name in [name for name, one in self._all.items() if not one.running][:over]:
            del self._all[name]
