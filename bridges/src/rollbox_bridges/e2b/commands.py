"""The commands of one sandbox that E2B's clients have started: found by pid or tag, each with one writer of its input.

A command is known by its id at the platform, which holds the tag too; so a bridge that was started anew finds them all.
"""

from __future__ import annotations

import re
import secrets
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Final

from rollbox import ExecSummary, Process, Sandbox, errors
from rollbox_bridges.connect.codes import ConnectError

_PREFIX: Final = "e2b-"
_TERMINAL: Final = "t"
_PIPES: Final = "p"
# An id has 64 characters at most: the prefix, the kind, eight bytes in hexadecimal, and the tag in base64.
_ID: Final = re.compile(r"e2b-([tp])-[0-9a-f]{16}-([A-Za-z0-9_-]*)")
_MOST_TAG_BYTES: Final = 30
_BASH: Final = "/bin/bash"
_SHELL: Final = "/bin/sh"
# Beyond so many, the connection of the one that was used least recently is closed; the command goes on.
_MOST_KEPT: Final = 256


def exec_id_of(tag: str | None, *, terminal: bool) -> str:
    """Make the id of a command, with its tag, and whether it has a terminal.

    Raises:
        ConnectError: the tag is too long.
    """
    data = (tag or "").encode()
    if len(data) > _MOST_TAG_BYTES:
        raise ConnectError("invalid_argument", f"the tag has {len(data)} bytes, more than {_MOST_TAG_BYTES}")
    kind = _TERMINAL if terminal else _PIPES
    return f"{_PREFIX}{kind}-{secrets.token_hex(8)}-{urlsafe_b64encode(data).decode().rstrip('=')}"


def on_terminal(exec_id: str) -> bool:
    """Whether a command has a terminal."""
    found = _ID.fullmatch(exec_id)
    return found is not None and found[1] == _TERMINAL


def tag_of(exec_id: str) -> str | None:
    """The tag in the id of a command; None: it has none."""
    found = _ID.fullmatch(exec_id)
    if found is None or not found[2]:
        return None
    return urlsafe_b64decode(found[2] + "=" * (-len(found[2]) % 4)).decode("utf-8", "replace")


class Commands:
    """The commands of one sandbox.

    Args:
        sandbox: that they run in.
    """

    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox = sandbox
        self._kept: OrderedDict[str, Process] = OrderedDict()
        self._shell = _BASH

    async def start(
        self,
        argv: Sequence[str],
        *,
        tag: str | None,
        env: Mapping[str, str],
        cwd: str | None,
        user: str | None,
        stdin: bool,
        terminal: tuple[int, int] | None,
        timeout_s: float | None,
    ) -> Process:
        """Start one; where the image has no bash, `/bin/bash` is its sh.

        Raises:
            ConnectError: the tag is too long.
            SandboxError: as `Sandbox.spawn`.
        """
        shown = [self._shell, *argv[1:]] if argv[0] == _BASH else list(argv)

        async def spawn(words: list[str]) -> Process:
            return await self._sandbox.spawn(
                words,
                env=env,
                cwd=cwd,
                user=user,
                stdin=stdin,
                terminal=terminal,
                timeout=timeout_s,
                exec_id=exec_id_of(tag, terminal=terminal is not None),
            )

        try:
            process = await spawn(shown)
        except errors.InvalidArgument as error:
            if error.details.get("reason") != "command_not_found" or shown[0] != _BASH:
                raise
            process = await spawn([_SHELL, *argv[1:]])
            self._shell = _SHELL
        await self._keep(process)
        return process

    async def list(self) -> list[ExecSummary]:
        """Those that run."""
        return [one for one in await self._sandbox.processes.list() if one.running and one.exec_id.startswith(_PREFIX)]

    async def find(self, *, pid: int | None, tag: str | None) -> ExecSummary:
        """The one that runs with this pid or tag.

        Raises:
            ConnectError: there is none.
        """
        for one in await self._sandbox.processes.list():
            named = one.pid == pid if tag is None else tag_of(one.exec_id) == tag
            if one.running and named:
                return one
        what = f"pid {pid}" if tag is None else f"tag {tag!r}"
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
        self._kept[process.exec_id] = process
        if len(self._kept) > _MOST_KEPT:
            _, oldest = self._kept.popitem(last=False)
            await oldest.aclose()
