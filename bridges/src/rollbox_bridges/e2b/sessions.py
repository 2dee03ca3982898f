"""What the bridge holds of one sandbox that is used through it."""

from __future__ import annotations

from rollbox import Sandbox
from rollbox_bridges.e2b.contexts import Contexts
from rollbox_bridges.e2b.tags import PREFIX
from rollbox_bridges.e2b.users import Names
from rollbox_bridges.e2b.watchers import Watchers
from rollbox_bridges.processes.commands import Commands


class Session:
    """What the bridge holds of one sandbox; nothing that could not be had again.

    Attributes:
        sandbox, key: it, and its owner's key.
        commands: its commands.
        names: of its users.
        watchers, contexts: what its clients have begun here.
    """

    def __init__(self, sandbox: Sandbox, key: str) -> None:
        self.sandbox = sandbox
        self.key = key
        self.commands = Commands(sandbox, PREFIX)
        self.names = Names(sandbox.files)
        self.watchers = Watchers()
        self.contexts = Contexts(sandbox)

    async def aclose(self) -> None:
        """Close its connections; the sandbox and its commands go on, its watchers and interpreters end."""
        await self.commands.aclose()
        await self.watchers.aclose()
        await self.contexts.aclose()
