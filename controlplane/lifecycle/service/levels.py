"""What is true at the moment of a scrape, from all parts of the lifecycle."""

import asyncio
from collections.abc import Mapping
from typing import Final

from controlplane.errors import Problem
from controlplane.lifecycle.dependencies import Options
from controlplane.lifecycle.service.composition import Core
from controlplane.model import State
from controlplane.telemetry import Levels

# Of a scrape, which Prometheus gives up after ten seconds.
COUNT_WITHIN_S: Final = 5.0


async def levels(core: Core, options: Options, now_ms: int) -> Levels:
    """The values of the gauges; no counts while the store does not answer. Cost: a step of the store, O(sandboxes)."""
    states = await _states(core, now_ms)
    roles = core.replicas.roles
    scaler = core.scaler if "scaler" in roles else None
    return Levels(
        states=states or {},
        starts_in_flight=core.line.slots.taken,
        starts_queued=core.line.slots.waiting,
        feeds=core.board.subscribers,
        event_streams=core.events.listeners,
        webhooks={} if core.webhooks is None else core.webhooks.levels,
        notes_behind=core.annotations.pending,
        pools=core.pools.levels(),
        creates_waiting=len(core.create_queue),
        unstopped=core.reclaimer.unstopped,
        nodes_draining=core.draining_nodes,
        starts_unplaced=len(core.line.slots.refused) + len(core.line.room),
        store_up=states is not None,
        starts_limit=options.starts_in_flight,
        sandboxes_limit=options.max_sandboxes,
        oldest_ms=core.population.oldest_ms(now_ms),
        owners=core.population.owners(),
        quotas=core.quotas.levels() if "quota_use" in roles else {},
        roles=roles | {"pools"} if core.pools.leads else roles,
        node_pools={} if scaler is None else scaler.report.nodes(),
        scaler_unplaced=0 if scaler is None else scaler.report.unplaced_in_all,
        egress_unserved=0 if core.egress is None else core.egress.assignments.unserved,
    )


async def _states(core: Core, now_ms: int) -> Mapping[State, int] | None:
    """How many sandboxes are in each state; None: the store does not answer."""
    try:
        async with asyncio.timeout(COUNT_WITHIN_S):
            states = await core.store.counts()
            # Only where something is stuck, or its last change was missed here.
            for sandbox_id in core.population.doubtful(now_ms):
                if await core.ledger.refresh(sandbox_id) is None:
                    core.population.forget(sandbox_id)
    except (Problem, TimeoutError):
        return None
    return states
