"""What the bridge holds of one sandbox that is used through it."""

from __future__ import annotations

from dataclasses import replace
from posixpath import dirname, join, normpath

from rollbox import FileInfo, Sandbox
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
        self._directory = ""

    async def shown(self, info: FileInfo) -> FileInfo:
        """A file as clients are told of it: by paths from the root, whatever they have asked by.

        Cost: of the first relative path a command, in images that have a shell; in others the path stays as it is.
        """
        path = info.path
        if not path.startswith("/"):
            # What is in it is what the sandbox was made with: it does not change.
            self._directory = self._directory or (await self.sandbox.exec("pwd -P")).stdout.rstrip("\n")
            path = normpath(join(self._directory, path))
        link = info.link_target
        return replace(info, path=path, link_target=None if link is None else normpath(join(dirname(path), link)))

    async def aclose(self) -> None:
        """Close its connections; the sandbox and its commands go on, its watchers and interpreters end."""
        await self.commands.aclose()
        await self.watchers.aclose()
        await self.contexts.aclose()
