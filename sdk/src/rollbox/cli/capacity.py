"""`rollbox capacity`: what is free on the nodes, and what waits for room."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from rollbox.cli import output
from rollbox.cli.options import Json, Watch
from rollbox.cli.sandboxes import span

if TYPE_CHECKING:
    from rollbox.capacity import Amounts, Capacity
    from rollbox.client import Client

_NODES = ("node", "sandboxes", "pods", "free cpu", "free memory", "free gpu", "more fit", "takes starts")
_WAITING = ("sandbox", "of", "cpu", "memory", "waited", "refused in", "about", "why")


def capacity(*, watch: Watch = False, json: Json = False) -> None:
    """Show what is free on the nodes, and which starts wait for room (operators)."""

    async def call(client: Client) -> Capacity:
        return await client.capacity()

    seen = output.shown(
        call, _tables, lambda seen: seen.to_json(), what="fetching the capacity", as_json=json, watch=watch
    )
    if json:
        return
    if seen.known:
        there = f"{_count(seen.sandboxes, 'sandbox', 'es')} on {_count(seen.nodes_in_all, 'node')}"
        more = f"{there}; {seen.fits} more of the default size fit"
        output.message(more)
    else:
        output.message("what is free is not known here: an engine sets nothing aside, or pods cannot be listed")
    if seen.waiting_in_all:
        added = f"{seen.pending_pods} of each control plane may be Pending" if seen.pending_pods else "no node is added"
        waiting = "1 start waits" if seen.waiting_in_all == 1 else f"{seen.waiting_in_all} starts wait"
        output.message(f"{waiting} for room; {added}")


def _tables(seen: Capacity) -> str:
    tables = [output.written(_NODES, _nodes(seen))] if seen.known else []
    tables += [output.written(_WAITING, _waiting(seen), told=True)] if seen.waiting else []
    return "\n\n".join(tables)


def _nodes(seen: Capacity) -> list[tuple[str, ...]]:
    return [
        (
            one.name,
            str(one.sandboxes),
            f"{one.pods} of {one.allocatable.pods}",
            _part(one.free.cpu_millicores, one.allocatable.cpu_millicores, 1000),
            _part(one.free.memory_bytes, one.allocatable.memory_bytes, 1 << 30, "Gi"),
            _gpu(one.free, one.allocatable),
            str(one.fits),
            f"no: it {one.closed}" if one.closed else "yes",
        )
        for one in seen.nodes
    ]


def _waiting(seen: Capacity) -> list[tuple[str, ...]]:
    now_ms = time.time() * 1000
    return [
        (
            one.sandbox_id,
            f"pool {one.pool}" if one.pool and not one.owner else one.owner,
            f"{one.cpu_millicores / 1000:g}",
            f"{one.memory_bytes / (1 << 20):.4g}Mi",
            span((now_ms - one.since_ms) / 1000),
            span((one.until_ms - now_ms) / 1000),
            "?" if one.estimate_ms is None else span(one.estimate_ms / 1000),
            one.why,
        )
        for one in seen.waiting
    ]


def _count(number: int, what: str, plural: str = "s") -> str:
    return f"{number} {what}{plural if number != 1 else ''}"


def _part(free: int, most: int, size: int, unit: str = "") -> str:
    return f"{free / size:.3g} of {most / size:.3g}{unit}"


def _gpu(free: Amounts, most: Amounts) -> str:
    return f"{free.gpu} of {most.gpu}" if most.gpu else "-"
