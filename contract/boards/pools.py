"""Pools and capacity."""

from __future__ import annotations

from boards.model import Board, Panel, Query, Row
from boards.queries import CREATES, ENDS, PHASE, POOLED, WARM, quantiles, rate

POOLS = Board(
    "pools",
    "rollbox: pools and capacity",
    "Whether pools keep up with what is claimed, and whether there is room.",
    (
        Row(
            "Pools",
            (
                Panel("Ready", [Query('sum by (pool) (rollbox_pool_sandboxes{$N,what="ready"})', "{{pool}}")]),
                Panel(
                    "Ready, of what is wanted",
                    [
                        Query(
                            'sum by (pool) (rollbox_pool_sandboxes{$N,what="ready"}) / '
                            'clamp_min(sum by (pool) (rollbox_pool_sandboxes{$N,what="wanted"}), 1)',
                            "{{pool}}",
                        )
                    ],
                    "percentunit",
                    what="0 for long: the pool is dry, and creates start cold.",
                ),
                Panel(
                    "Starting and outdated",
                    [
                        Query(
                            'sum by (pool, what) (rollbox_pool_sandboxes{$N,what=~"starting|outdated"})',
                            "{{pool}} {{what}}",
                        )
                    ],
                ),
                Panel(
                    "Served warm, by pool",
                    [
                        Query(
                            f"{rate(CREATES, WARM + ',' + POOLED, 'pool')} / clamp_min({rate(CREATES, POOLED, 'pool')}, 1e-9)",
                            "{{pool}}",
                        )
                    ],
                    "percentunit",
                    most=1,
                ),
                Panel(
                    "Cold although there is a pool",
                    [Query(rate(CREATES, 'served!="warm",pool!=""', "pool, served"), "{{pool}} {{served}}")],
                    "ops",
                ),
                Panel("A start of a pool's sandbox", quantiles(PHASE, 'phase="total",start="pool"'), "s"),
            ),
        ),
        Row(
            "Capacity",
            (
                Panel(
                    "Sandboxes",
                    [
                        Query('sum(max by (state) (rollbox_sandboxes{$N,state!="ended"}))', "there"),
                        Query("max(rollbox_sandboxes_limit{$N})", "limit (0: none)"),
                    ],
                ),
                Panel("Starts that fit on no node", [Query("sum(rollbox_starts_unplaced{$N})", "starts")]),
                Panel(
                    "Scheduler against free room",
                    [Query(rate("rollbox_placement_disagreements_total", by="scheduler"), "{{scheduler}}")],
                    "ops",
                    what="It placed what had no room by the platform's arithmetic, or refused what had some.",
                ),
                Panel("Ends for want of room", [Query(rate(ENDS, 'fault="capacity"', "cause"), "{{cause}}")], "ops"),
                Panel(
                    "Unclaimed ones that made room for a create",
                    [Query(rate("rollbox_unclaimed_gave_way_total", by="room"), "{{room}}")],
                    "ops",
                ),
                Panel(
                    "Ended and not stopped by their node",
                    [Query("max(rollbox_sandboxes_not_stopped{$N})", "sandboxes")],
                ),
                Panel(
                    "Nodes that are emptied",
                    [
                        Query("max(rollbox_nodes_draining{$N})", "nodes"),
                        Query(rate("rollbox_drained_sandboxes_total", by="step"), "sandboxes {{step}} a second"),
                    ],
                ),
                Panel(
                    "Oldest sandbox by state",
                    [Query("max by (state) (rollbox_sandbox_oldest_seconds{$N})", "{{state}}")],
                    "s",
                ),
                Panel(
                    "Free for images, by node",
                    [Query("min by (instance) (rollbox_node_images_free_bytes{$N})", "{{instance}}")],
                    "bytes",
                ),
            ),
        ),
        Row(
            "Nodes that the scaler adds and removes",
            (
                Panel(
                    "Nodes by pool",
                    [Query("sum by (node_pool, what) (rollbox_node_pool_nodes{$N})", "{{node_pool}} {{what}}")],
                    what="Wanted above ready for long: nodes do not come. Wanted at most: raise the pool's maximum.",
                ),
                Panel(
                    "Sandboxes that no node may have",
                    [Query("max(rollbox_scaler_unplaced{$N})", "sandboxes")],
                    what="They wait, and every node pool that they fit is at its maximum, pauses or fails: `rollbox capacity`.",
                ),
                Panel(
                    "Steps",
                    [Query(rate("rollbox_scaler_steps_total", by="node_pool, step"), "{{node_pool}} {{step}}")],
                    "ops",
                ),
                Panel(
                    "Failures of node providers",
                    [Query(rate("rollbox_scaler_failures_total", by="node_pool, cause"), "{{node_pool}} {{cause}}")],
                    "ops",
                    what="conflict: something changed between a look and a step, which is decided anew.",
                ),
            ),
        ),
    ),
)
