"""`rollbox top`."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from rollbox._problem import SandboxError
from rollbox.cli import output
from rollbox.cli.options import Json

if TYPE_CHECKING:
    from rich.console import Console

    from rollbox.client import Client
    from rollbox.sandbox import Sandbox
    from rollbox.usage import Usage

_COLUMNS = ("id", "cpu", "cpu time", "memory", "disk", "processes")
# Between the two samples of cpu time: over less time, the cpu share would mean nothing.
_FIRST_LOOK_S = 0.5


class _Watched:
    """The sandboxes of one `top`, and the cpu time of each at the last update."""

    def __init__(self, client: Client, ids: list[str]) -> None:
        self._client = client
        self._ids = ids
        self._opened: dict[str, Sandbox] = {}
        self._before: dict[str, tuple[float, float]] = {}

    async def read(self) -> dict[str, Usage | SandboxError]:
        """Fetch the usage of all concurrently; a sandbox whose request fails has the error instead."""
        import asyncio

        ids = self._ids or [record.id for record in await self._client.list() if record.state == "running"]
        found = await asyncio.gather(*(self._one(sandbox_id) for sandbox_id in ids))
        return dict(zip(ids, found, strict=True))

    async def _one(self, sandbox_id: str) -> Usage | SandboxError:
        try:
            if sandbox_id not in self._opened:
                self._opened[sandbox_id] = await self._client.connect(sandbox_id)
            return await self._opened[sandbox_id].usage()
        except SandboxError as error:
            return error

    def row(self, sandbox_id: str, seen: Usage | SandboxError) -> tuple[str, ...]:
        """Build a row of the table; its cpu share is that since the row before."""
        if isinstance(seen, SandboxError):
            return (sandbox_id, seen.code, "", "", "", "")
        now = time.monotonic()
        then, used_ms = self._before.get(sandbox_id, (now, seen.cpu_ms))
        self._before[sandbox_id] = (now, seen.cpu_ms)
        cpu = f"{(seen.cpu_ms - used_ms) / (now - then) / 10:.0f}%" if now > then else ""
        processes = f"{seen.processes}" + (f" / {seen.processes_limit}" if seen.processes_limit else "")
        memory = _share(seen.memory_bytes, seen.memory_limit_bytes)
        disk = _share(seen.disk_bytes, seen.disk_limit_bytes)
        return (sandbox_id, cpu, f"{seen.cpu_ms / 1000:.1f}s", memory, disk, processes)


def top(
    ids: Annotated[list[str] | None, typer.Argument(metavar="[ID]…", help="Sandboxes; all when none is given.")] = None,
    *,
    interval: Annotated[float, typer.Option(min=0.1, help="Seconds between updates.")] = 2.0,
    json: Json = False,
) -> None:
    """Show what sandboxes use: updated until Ctrl-C on a terminal, once with --json or into a pipe."""
    import asyncio

    from rich.console import Console

    from rollbox.usage import Usage

    console = Console()

    async def call(client: Client) -> dict[str, Usage | SandboxError]:
        watched = _Watched(client, ids or [])
        seen = await watched.read()
        if json:
            return seen
        if console.is_terminal:
            await _refresh(watched, console, interval)
        for one in seen.items():
            watched.row(*one)
        await asyncio.sleep(_FIRST_LOOK_S)
        seen = await watched.read()
        output.table(_COLUMNS, [watched.row(*one) for one in seen.items()])
        return seen

    seen = output.run(call, what="fetching what sandboxes use", as_json=json, quiet=True)
    if json:
        told = {sandbox_id: one.to_json() for sandbox_id, one in seen.items() if isinstance(one, Usage)}
        output.data({"sandboxes": told})
    failed = [one for one in seen.values() if isinstance(one, SandboxError)]
    if ids and failed:
        output.fail(failed[-1], as_json=json)


async def _refresh(watched: _Watched, console: Console, interval: float) -> None:
    import asyncio

    from rich.live import Live
    from rich.table import Table

    with Live(console=console, auto_refresh=False) as live:
        while True:
            table = Table(*_COLUMNS, box=None)
            for one in (await watched.read()).items():
                table.add_row(*watched.row(*one))
            live.update(table, refresh=True)
            await asyncio.sleep(interval)


def _share(used: int, limit: int | None) -> str:
    return _size(used) + (f" / {_size(limit)}" if limit else "")


def _size(count: float) -> str:
    for unit in ("B", "Ki", "Mi", "Gi"):
        if count < 1024:
            return f"{count:.0f}{unit}"
        count /= 1024
    return f"{count:.1f}Ti"
