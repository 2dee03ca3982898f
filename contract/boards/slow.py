"""Why a run is slow."""

from __future__ import annotations

from boards.model import Board, Panel, Query, Row
from boards.queries import COLD, CREATES, PARTS, PHASE, each, mean, quantile, quantiles, rate, whole

SLOW = Board(
    "slow",
    "rollbox: why is my run slow",
    "Where the time of creates and commands goes: room, the start queue, images, the node, the command itself.",
    (
        Row(
            "Waiting for room",
            (
                Panel("Creates that wait", [Query(each("rollbox_creates_waiting"), "for quota or room")]),
                Panel(
                    "Waits for room, p99",
                    [Query(quantile(0.99, "rollbox_create_wait_seconds", by="room"), "{{room}}")],
                    "s",
                    what="By what was missing: a resource of the owner's quota, or room in the installation (total).",
                ),
                Panel(
                    "Starts",
                    [
                        Query(each("rollbox_starts_in_flight"), "in flight"),
                        Query(whole("rollbox_starts_limit"), "limit"),
                        Query(each("rollbox_starts_queued"), "queued"),
                        Query(each("rollbox_starts_unplaced"), "fit on no node"),
                    ],
                    what="At the limit starts queue here. What fits on no node waits for room there, not for a start slot.",
                ),
            ),
        ),
        Row(
            "Starts",
            (
                Panel(
                    "A cold start by phase, mean",
                    [Query(mean(PHASE, PARTS, "phase"), "{{phase}}")],
                    "s",
                    what="Of the starts that had the phase. copy, convert, pull: the image; start: the cluster; ready_push: from there on until a command has run in it, with boot. They overlap: their sum is no start's time.",
                ),
                Panel(
                    "A cold start by phase, p99",
                    [Query(quantile(0.99, PHASE, COLD, "phase"), "{{phase}}")],
                    "s",
                ),
                Panel("Warm starts", quantiles(PHASE, 'phase="total",start="warm"'), "s"),
                Panel(
                    "Why not warm",
                    [Query(rate(CREATES, 'served!="warm"', "served"), "{{served}}")],
                    "ops",
                    what="none_ready: the pool is too small; other_template: it keeps the image with other settings; no_pool: nothing keeps the image.",
                ),
                Panel(
                    "Images: how nodes get them",
                    [Query(rate("rollbox_image_pulls_total", by="how, reason"), "{{how}} {{reason}}")],
                    "ops",
                ),
                Panel(
                    "Images: pinned to a digest",
                    [Query(rate("rollbox_image_pins_total", by="outcome"), "{{outcome}}")],
                    "ops",
                    log=True,
                ),
            ),
        ),
        Row(
            "Commands",
            (
                Panel(
                    "Commands by phase, p99",
                    [
                        Query(quantile(0.99, f"rollbox_gateway_exec_{phase}_seconds"), phase)
                        for phase in ("queue", "spawn", "run", "sidecar", "total")
                    ],
                    "s",
                    what="queue: at the gateway; spawn: in the sandbox; run: the command itself; sidecar: network, spawn and run.",
                ),
                Panel(
                    "Commands by phase, mean",
                    [
                        Query(mean(f"rollbox_gateway_exec_{phase}_seconds"), phase)
                        for phase in ("queue", "spawn", "run")
                    ],
                    "s",
                    stacked=True,
                ),
                Panel(
                    "Commands under way",
                    [
                        Query(each("rollbox_gateway_exec_inflight"), "in flight"),
                        Query(each("rollbox_gateway_exec_queued"), "queued"),
                    ],
                ),
            ),
        ),
        Row(
            "Behind them",
            (
                Panel(
                    "Routes reach gateways, p99",
                    [Query(quantile(0.99, "rollbox_gateway_route_lag_seconds"), "lag")],
                    "s",
                ),
                Panel(
                    "Changes reach replicas, p99", [Query(quantile(0.99, "rollbox_store_feed_lag_seconds"), "lag")], "s"
                ),
                Panel("Steps of the store, p99", [Query(quantile(0.99, "rollbox_store_call_seconds"), "p99")], "s"),
            ),
        ),
    ),
)
