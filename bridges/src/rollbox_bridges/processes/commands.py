"""The commands of one sandbox that a bridge's clients have started, each with one writer of its input.

A command is known by its id at the platform, which holds what a protocol calls it; so a bridge that was started anew
finds them all.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Final, Unpack

from rollbox import ExecSummary, Process, Sandbox, SpawnOptions, errors
from rollbox_bridges.connect.codes import ConnectError

_BASH: Final = "/bin/bash"
_SHELL: Final = "/bin/sh"
# Beyond so many, the connection of the one that was used least recently is closed; the command goes on.
_MOST_KEPT: Final = 256


class Commands:
    """The commands of one sandbox.

    Args:
        sandbox: that they run in.
        prefix: how the ids of those begin that were started by this protocol.
    """

    def __init__(self, sandbox: Sandbox, prefix: str) -> None:
        self._sandbox = sandbox
        self._prefix = prefix
        self._kept: OrderedDict[str, Process] = OrderedDict()
        self._shell = _BASH

    async def start(self, argv: Sequence[str], **options: Unpack[SpawnOptions]) -> Process:
        """Start one; where the image has no bash, `/bin/bash` is its sh.

        Raises:
            SandboxError: as `Sandbox.spawn`.
        """
        shown = [self._shell, *argv[1:]] if argv[0] == _BASH else list(argv)
        try:
            process = await self._sandbox.spawn(shown, **options)
        except errors.InvalidArgument as error:
            if error.details.get("reason") != "command_not_found" or shown[0] != _BASH:
                raise
            process = await self._sandbox.spawn([_SHELL, *argv[1:]], **options)
            self._shell = _SHELL
        await self._keep(process)
        return process

    async def list(self) -> list[ExecSummary]:
        """Those of this protocol that run."""
        all_ = await self._sandbox.processes.list()
        return [one for one in all_ if one.running and one.exec_id.startswith(self._prefix)]

    async def find(self, what: str, is_it: Callable[[ExecSummary], bool], *, ended: bool = False) -> ExecSummary:
        """One command, also one that was started by other means.

        Args:
            what: it is, in the protocol's words.
            is_it: tells it from others.
            ended: whether it may have ended.

        Raises:
            ConnectError: there is none.
        """
        for one in await self._sandbox.processes.list():
            if (ended or one.running) and is_it(one):
                return one
        raise ConnectError("not_found", f"no process with {what} runs")

    async def attach(self, summary: ExecSummary) -> Process:
        """Attach to one's output from now on; close what is returned."""
        at = (summary.stdout_bytes, summary.stderr_bytes)
        process = await self._sandbox.processes.attach(summary.exec_id, stdout_offset=at[0], stderr_offset=at[1])
        process.detach()
        return process

    def writer(self, exec_id: str) -> Process:
        """The one whose input can be written.

        Raises:
            ConnectError: this bridge has not started it, so that it does not know how much input it has had.
        """
        process = self._kept.get(exec_id)
        if process is None:
            raise ConnectError(
                "failed_precondition", "its input cannot be written: the bridge was restarted since it began"
            )
        self._kept.move_to_end(exec_id)
        return process

    async def forget(self, process: Process) -> None:
        """Let go of one that has ended."""
        self._kept.pop(process.exec_id, None)
        await process.aclose()

    async def aclose(self) -> None:
        """Close all connections; the commands go on."""
        kept, self._kept = self._kept, OrderedDict()
        for process in kept.values():
            await process.aclose()

    async def _keep(self, process: Process) -> None:
        process.detach()
        if process.exec_id in self._kept:
            # It was started before, by a call with the same id: how much input it has had is known there.
            return
        self._kept[process.exec_id] = process
        if len(self._kept) > _MOST_KEPT:
            _, oldest = self._kept.popitem(last=False)
            await oldest.aclose()
