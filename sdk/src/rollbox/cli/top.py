"""`rollbox top`: what runs, how fast it starts, what pools have, and what sandboxes use."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rollbox import labels as label_rules
from rollbox._problem import SandboxError
from rollbox.cli import layout, output
from rollbox.cli.options import Json, Labels, time_option

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Sequence

    from rollbox.client import Client
    from rollbox.pool import Pool
    from rollbox.record import SandboxRecord
    from rollbox.recording.tails import Tail
    from rollbox.sandbox import Sandbox
    from rollbox.usage import Usage

_COLUMNS = ("id", "cpu", "cpu time", "memory", "disk", "processes")
_COUNTED_BY_SANDBOX = "~ counted by the sandbox's own kernel: what waited for a processor is in it (no node agent)"
_POOLS = ("pool", "ready", "starting", "wanted", "claims/min", "why")
# Between the two samples of cpu time: over less time, the cpu share would mean nothing.
_FIRST_LOOK_S = 0.5
# One request each, every time; for people only the youngest are asked.
_MOST_ASKED = 50
# With --json all are asked: more at once would only wait for one another, here and at the gateway.
_ASKED_AT_ONCE = 32
_MINUTE_MS = 60_000


@dataclass(frozen=True)
class _Seen:
    """One look at an installation.

    Attributes:
        records: of the owner's sandboxes that have not ended; empty where ids were given.
        pools: None where ids were given; or the error of the request.
        usage: of running sandboxes, or the error of the question; for people of the youngest only.
        now_ms: Unix time of the look.
    """

    records: Sequence[SandboxRecord] = ()
    pools: Sequence[Pool] | SandboxError | None = None
    usage: dict[str, Usage | SandboxError] = field(default_factory=dict)
    now_ms: float = 0.0

    @property
    def states(self) -> dict[str, int]:
        """How many sandboxes are in which state."""
        return dict(Counter(one.state for one in self.records).most_common())

    def created(self) -> Counter[str]:
        """How many of them were created in the last minute, warm and cold."""
        since_ms = self.now_ms - _MINUTE_MS
        return Counter(one.source or "cold" for one in self.records if _asked_ms(one) >= since_ms)

    def cold_starts(self) -> Tail:
        """How long the cold starts of those that are there took."""
        from rollbox.recording.tails import Durations

        found = Durations()
        for one in self.records:
            if one.source != "warm" and one.ready_at_ms is not None:
                found.add(one.ready_at_ms - one.created_at_ms)
        return found.tail()

    def to_json(self) -> dict[str, Any]:
        """Write it for `--json`."""
        from rollbox.usage import Usage

        usage = {name: one.to_json() for name, one in self.usage.items() if isinstance(one, Usage)}
        failed = {name: output.problem(one) for name, one in self.usage.items() if isinstance(one, SandboxError)}
        if self.pools is None:
            return {"sandboxes": usage, "failed": failed}
        cold = self.cold_starts()
        return {
            "states": self.states,
            "created_last_minute": dict(self.created()),
            "cold_starts_ms": {"count": cold.count, "p50": cold.p50_ms, "p99": cold.p99_ms, "max": cold.max_ms},
            "pools": None if isinstance(self.pools, SandboxError) else [one.to_json() for one in self.pools],
            "pools_failed": output.problem(self.pools) if isinstance(self.pools, SandboxError) else None,
            "sandboxes": usage,
            "failed": failed,
        }


class _Watched:
    """The sandboxes of one `top`, and what each used at the last update."""

    def __init__(self, client: Client, ids: list[str], labels: dict[str, str], most: int | None = None) -> None:
        self._client = client
        self._ids = ids
        self._labels = labels
        self._most = most
        self._opened: dict[str, Sandbox] = {}
        self._before: dict[str, tuple[float, Usage]] = {}

    async def read(self) -> _Seen:
        """Look at all, some at a time; a sandbox whose request fails has the error instead of its usage."""
        import asyncio

        records: list[SandboxRecord] = []
        pools: Sequence[Pool] | SandboxError | None = None
        ids = self._ids
        if not ids:
            records, pools = await asyncio.gather(self._client.list(self._labels), self._pools())
            youngest = sorted(records, key=_asked_ms, reverse=True)
            ids = [record.id for record in youngest if record.state == "running"][: self._most]
        slots = asyncio.Semaphore(_ASKED_AT_ONCE)
        found = await asyncio.gather(*(self._one(sandbox_id, slots) for sandbox_id in ids))
        return _Seen(records, pools, dict(zip(ids, found, strict=True)), time.time() * 1000)

    async def _pools(self) -> Sequence[Pool] | SandboxError:
        try:
            return await self._client.pools()
        except SandboxError as error:
            return error

    async def _one(self, sandbox_id: str, slots: asyncio.Semaphore) -> Usage | SandboxError:
        async with slots:
            try:
                if sandbox_id not in self._opened:
                    self._opened[sandbox_id] = await self._client.connect(sandbox_id)
                return await self._opened[sandbox_id].usage()
            except SandboxError as error:
                return error

    def text(self, seen: _Seen) -> str:
        """Write a look for people."""
        from rollbox.usage import Usage

        parts = [] if self._ids else [_head(seen)]
        if isinstance(seen.pools, SandboxError):
            parts.append(f"pools        {seen.pools.code}")
        elif seen.pools:
            parts.append(output.written(_POOLS, [_pool(one) for one in seen.pools], told=True))
        parts.append(output.written(_COLUMNS, [self.row(*one) for one in seen.usage.items()]))
        running = seen.states.get("running", 0)
        if any(isinstance(one, Usage) and one.cpu_counted_by == "sandbox" for one in seen.usage.values()):
            parts.append(layout.wrapped(_COUNTED_BY_SANDBOX, output.width(), indent="  "))
        if running > len(seen.usage):
            parts.append(f"the {len(seen.usage)} youngest of {running} that run")
        return "\n\n".join(parts)

    def row(self, sandbox_id: str, seen: Usage | SandboxError) -> tuple[str, ...]:
        """Build a row of the table; its cpu share is that since the row before."""
        if isinstance(seen, SandboxError):
            return (sandbox_id, seen.code, "", "", "", "")
        now = time.monotonic()
        then, before = self._before.get(sandbox_id, (now, seen))
        self._before[sandbox_id] = (now, seen)
        mark = "~" if seen.cpu_counted_by == "sandbox" else ""
        # Between what two of them have counted there is no share.
        known = now > then and before.cpu_counted_by == seen.cpu_counted_by
        cpu = f"{mark}{max(0.0, seen.cpu_ms - before.cpu_ms) / (now - then) / 10:.0f}%" if known else ""
        processes = f"{seen.processes}" + (f" / {seen.processes_limit}" if seen.processes_limit else "")
        memory = _share(seen.memory_bytes, seen.memory_limit_bytes)
        if seen.memory_files_bytes:
            memory += f" ({_size(seen.memory_files_bytes)} of it files)"
        disk = "" if seen.disk_bytes is None else _share(seen.disk_bytes, seen.disk_limit_bytes)
        return (sandbox_id, cpu, f"{mark}{seen.cpu_ms / 1000:.1f}s", memory, disk, processes)


def top(
    ids: Annotated[list[str] | None, typer.Argument(metavar="[ID]…", help="Sandboxes; all when none is given.")] = None,
    *,
    label: Labels = None,
    interval: Annotated[float, time_option("Between updates: seconds, or 500ms.", least_s=0.1)] = 2.0,
    json: Json = False,
) -> None:
    """Show what runs, how fast it starts, what pools have, and what sandboxes use (the 50 youngest; all with
    --json): updated until Ctrl-C on a terminal, once with --json or into a pipe.
    """
    import asyncio

    async def call(client: Client) -> _Seen:
        watched = _Watched(client, ids or [], label_rules.parse(label or ()), None if json else _MOST_ASKED)
        seen = await watched.read()
        if json:
            return seen
        if output.on_terminal():
            await _refresh(watched, interval)
        watched.text(seen)
        await asyncio.sleep(_FIRST_LOOK_S)
        seen = await watched.read()
        typer.echo(watched.text(seen))
        return seen

    seen = output.run(call, what="fetching what sandboxes use", as_json=json, quiet=True)
    if json:
        output.data(seen.to_json())
    failed = [one for one in seen.usage.values() if isinstance(one, SandboxError)]
    if ids and failed:
        output.fail(failed[-1], as_json=json)


async def _refresh(watched: _Watched, interval: float) -> None:
    import asyncio

    from rich.live import Live
    from rich.text import Text

    with Live(auto_refresh=False) as live:
        while True:
            seen = await watched.read()
            live.update(Text(watched.text(seen), overflow="fold"), refresh=True)
            await asyncio.sleep(interval)


def _head(seen: _Seen) -> str:
    from rollbox.report.words import duration

    states = ", ".join(f"{count} {state}" for state, count in seen.states.items()) or "none"
    created = ", ".join(f"{count} {source}" for source, count in seen.created().most_common()) or "none"
    lines = [f"sandboxes    {states}", f"last minute  created {created} (of those that are there)"]
    if (cold := seen.cold_starts()).count:
        tails = f"p50 {duration(cold.p50_ms)}, p99 {duration(cold.p99_ms)}, max {duration(cold.max_ms)}"
        lines.append(f"cold starts  {tails} (of the {cold.count} that are there)")
    return layout.wrapped("\n".join(lines), output.width(), indent=" " * 13)


def _pool(pool: Pool) -> tuple[str, ...]:
    numbers = (pool.ready, pool.starting, pool.wanted, pool.claimed_per_minute)
    return (pool.name, *map(str, numbers), pool.why or pool.trouble)


def _asked_ms(record: SandboxRecord) -> int:
    return record.claimed_at_ms or record.created_at_ms


def _share(used: int, limit: int | None) -> str:
    return _size(used) + (f" / {_size(limit)}" if limit else "")


def _size(count: float) -> str:
    for unit in ("B", "Ki", "Mi", "Gi"):
        if count < 1024:
            return f"{count:.0f}{unit}"
        count /= 1024
    return f"{count:.1f}Ti"
