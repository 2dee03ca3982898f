"""Why a run is slow."""

from __future__ import annotations

from boards.model import Board, Panel, Query, Row
from boards.queries import COLD, COLD_TOTAL, CREATES, PARTS, PHASE, quantile, quantiles, rate, share

SLOW = Board(
    "slow",
    "rollbox: why is my run slow",
    "Where the time of creates and commands goes: room, the start queue, images, the node, the command itself.",
    (
        Row(
            "Waiting for room",
            (
                Panel("Creates that wait", [Query("sum(rollbox_creates_waiting{$N})", "for quota or room")]),
                Panel(
                    "Waits for room, p99",
                    [Query(quantile(0.99, "rollbox_create_wait_seconds", by="room"), "{{room}}")],
                    "s",
                    what="By what was missing: a resource of the owner's quota, or room in the installation (total).",
                ),
                Panel(
                    "Starts",
                    [
                        Query("sum(rollbox_starts_in_flight{$N})", "in flight"),
                        Query("max(rollbox_starts_limit{$N})", "limit"),
                        Query("sum(rollbox_starts_queued{$N})", "queued"),
                        Query("sum(rollbox_starts_unplaced{$N})", "fit on no node"),
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
                    [
                        Query(
                            f"{rate(PHASE + '_sum', PARTS, 'phase')} / on() group_left() clamp_min({rate(PHASE + '_count', COLD_TOTAL)}, 1e-9)",
                            "{{phase}}",
                        )
                    ],
                    "s",
                    stacked=True,
                    what="copy, convert, pull: the image; start: the cluster; boot: until a command has run in it.",
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
                        Query(
                            share(
                                rate(f"rollbox_gateway_exec_{phase}_seconds_sum"),
                                rate(f"rollbox_gateway_exec_{phase}_seconds_count"),
                            ),
                            phase,
                        )
                        for phase in ("queue", "spawn", "run")
                    ],
                    "s",
                    stacked=True,
                ),
                Panel(
                    "Commands under way",
                    [
                        Query("sum(rollbox_gateway_exec_inflight{$N})", "in flight"),
                        Query("sum(rollbox_gateway_exec_queued{$N})", "queued"),
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
