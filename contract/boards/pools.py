"""Pools and capacity."""

from __future__ import annotations

from boards.model import Board, Panel, Query, Row
from boards.queries import CREATES, ENDS, PHASE, POOLED, WARM, each, quantiles, rate, share, whole

POOL, LIVE = "rollbox_pool_sandboxes", 'state!="ended"'

POOLS = Board(
    "pools",
    "rollbox: pools and capacity",
    "Whether pools keep up with what is claimed, and whether there is room.",
    (
        Row(
            "Pools",
            (
                Panel("Ready", [Query(whole(POOL, 'what="ready"', "pool"), "{{pool}}")]),
                Panel(
                    "Ready, of what is wanted",
                    [
                        Query(
                            share(whole(POOL, 'what="ready"', "pool"), whole(POOL, 'what="wanted"', "pool")), "{{pool}}"
                        )
                    ],
                    "percentunit",
                    what="0 for long: the pool is dry, and creates start cold.",
                ),
                Panel(
                    "Starting and outdated",
                    [
                        Query(whole(POOL, 'what=~"starting|outdated"', "pool, what"), "{{pool}} {{what}}"),
                    ],
                ),
                Panel(
                    "Served warm, by pool",
                    [
                        Query(
                            share(rate(CREATES, f"{WARM},{POOLED}", "pool"), rate(CREATES, POOLED, "pool")), "{{pool}}"
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
                        Query(f"sum({whole('rollbox_sandboxes', LIVE, 'state')})", "there"),
                        Query(whole("rollbox_sandboxes_limit"), "limit (0: none)"),
                    ],
                ),
                Panel("Starts that fit on no node", [Query(each("rollbox_starts_unplaced"), "starts")]),
                Panel(
                    "Scheduler against free room",
                    [Query(rate("rollbox_placement_disagreements_total", by="scheduler"), "{{scheduler}}")],
                    "ops",
                    what="It placed what had no room by the platform's arithmetic, or refused what had some.",
                ),
                Panel(
                    "Ends for want of room",
                    [Query(rate(ENDS, 'fault="capacity"', "cause"), "{{cause}}")],
                    "ops",
                    log=True,
                ),
                Panel(
                    "Unclaimed ones that made room for a create",
                    [Query(rate("rollbox_unclaimed_gave_way_total", by="room"), "{{room}}")],
                    "ops",
                ),
                Panel(
                    "Ended and not stopped by their node",
                    [Query(each("rollbox_sandboxes_not_stopped"), "sandboxes")],
                ),
                Panel(
                    "Nodes that are emptied",
                    [
                        Query(whole("rollbox_nodes_draining"), "nodes"),
                        Query(rate("rollbox_drained_sandboxes_total", by="step"), "sandboxes {{step}} a second"),
                    ],
                ),
                Panel(
                    "Oldest sandbox, warm and running",
                    [
                        Query(
                            'max by (state) (rollbox_sandbox_oldest_seconds{$N,state=~"warm|running"})',
                            "{{state}}",
                        )
                    ],
                    "s",
                    what="Those that start or end, which are younger by far, are on the overview.",
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
                    [Query(whole("rollbox_node_pool_nodes", by="node_pool, what"), "{{node_pool}} {{what}}")],
                    what="Wanted above ready for long: nodes do not come. Wanted at most: raise the pool's maximum.",
                ),
                Panel(
                    "Sandboxes that no node may have",
                    [Query(whole("rollbox_scaler_unplaced"), "sandboxes")],
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
                    log=True,
                    what="conflict: something changed between a look and a step, which is decided anew.",
                ),
            ),
        ),
    ),
)
