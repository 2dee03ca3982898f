"""What the bridge holds of one sandbox that is used through it."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Final

from rollbox import Process, Sandbox, SandboxError
from rollbox_bridges.prime.once import Once
from rollbox_bridges.processes.commands import Commands

PREFIX: Final = "prime-"
"""How the ids of commands begin that Prime's clients have started."""


class Session:
    """What the bridge holds of one sandbox; nothing that could not be had again.

    Attributes:
        sandbox, key: it, and its owner's key.
        commands: its commands.
        once: what of their input and their signals was applied already.
        names: of its ports, as they were exposed here.
        unowned: commands without a session, which end with their callers.
    """

    def __init__(self, sandbox: Sandbox, key: str) -> None:
        self.sandbox = sandbox
        self.key = key
        self.commands = Commands(sandbox, PREFIX)
        self.once = Once()
        self.names: dict[int, str] = {}
        self.unowned: set[Process] = set()

    async def kill(self, process: Process) -> None:
        """Kill what nobody waits for any more; where its sandbox has ended there is nothing to kill."""
        with suppress(SandboxError):
            await process.kill()
        await self.commands.forget(process)

    async def kill_unowned(self) -> None:
        """Kill the commands whose callers this bridge leaves."""
        await asyncio.gather(*(self.kill(process) for process in self.unowned))

    async def aclose(self) -> None:
        """Close its connections; the sandbox and its commands go on."""
        await self.once.aclose()
        await self.commands.aclose()
