"""`rollbox capacity`: what is free on the nodes, what waits for room, and what the scaler does."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from rollbox.cli import output
from rollbox.cli.options import Json, Watch
from rollbox.cli.sandboxes import span

if TYPE_CHECKING:
    from rollbox.capacity import Amounts, Capacity, NodePool, Scaling, Unplaced
    from rollbox.client import Client

_NODES = ("node", "sandboxes", "pods", "free cpu", "free memory", "free gpu", "more fit", "takes starts")
_POOLS = ("node pool", "provider", "takes starts", "coming", "leaving", "wanted", "may have", "why")
_UNPLACED = ("sandboxes", "for", "cpu", "memory", "gpu", "why no node, there or to come, takes them")
_NEEDS = {"waiting": "starts", "idle": "pools", "pool": "pools", "ahead": "expected starts", "headroom": "headroom"}
_WAITING = ("sandbox", "of", "cpu", "memory", "waited", "refused in", "about", "why")


def capacity(*, watch: Watch = False, json: Json = False) -> None:
    """Show what is free on the nodes, which starts wait for room, and what the scaler does (operators)."""

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
        output.message("what is free is not known here: nobody tells what is set aside of this installation")
    if seen.waiting_in_all:
        added = f"{seen.pending_pods} of each control plane may be Pending" if seen.pending_pods else "no node is added"
        waiting = "1 start waits" if seen.waiting_in_all == 1 else f"{seen.waiting_in_all} starts wait"
        output.message(f"{waiting} for room; {added}")
    if seen.scaling is not None:
        output.message(_decided(seen.scaling))


def _decided(seen: Scaling) -> str:
    """What the scaler has decided, and in a dry run would do."""
    if seen.at_ms is None:
        why = "no control plane runs it, or what is free is not known"
        return f"the scaler has decided nothing within the last minute: {why}"
    ago = span(max(0.0, time.time() - seen.at_ms / 1000))
    verb = "it would do now, and does not, since it is a dry run" if seen.dry_run else "it does now"
    said = "".join(f"\n  {one}" for one in seen.steps) or " nothing"
    return f"the scaler decided {ago} ago; {verb}:{said}"


def _unplaced(one: Unplaced) -> tuple[str, ...]:
    cores, memory = f"{one.cpu_millicores / 1000:g}", output.plain(one.memory_bytes / (1 << 20)) + "Mi"
    return str(one.count), _NEEDS.get(one.need, one.need), cores, memory, str(one.gpu), one.why


def _pool(one: NodePool) -> tuple[str, ...]:
    why = one.why
    if one.paused_until_ms is not None:
        left = span(max(0.0, one.paused_until_ms / 1000 - time.time()))
        why = f"{why}; asked again in {left}"
    return (
        one.name,
        one.provider,
        str(one.ready),
        str(one.coming),
        str(one.leaving),
        str(one.wanted),
        f"{one.min} to {one.max}",
        why,
    )


def _tables(seen: Capacity) -> str:
    tables = [output.written(_NODES, _nodes(seen))] if seen.known else []
    tables += [output.written(_WAITING, _waiting(seen), told=True)] if seen.waiting else []
    if seen.scaling is not None and seen.scaling.at_ms is not None:
        tables.append(output.written(_POOLS, [_pool(one) for one in seen.scaling.node_pools], told=True))
        if seen.scaling.unplaced:
            tables.append(output.written(_UNPLACED, [_unplaced(one) for one in seen.scaling.unplaced], told=True))
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
            output.plain(one.memory_bytes / (1 << 20)) + "Mi",
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
    return f"{output.plain(round(free / size, 1))} of {output.plain(round(most / size, 1))}{unit}"


def _gpu(free: Amounts, most: Amounts) -> str:
    return f"{free.gpu} of {most.gpu}" if most.gpu else "-"
