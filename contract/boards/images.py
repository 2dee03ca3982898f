"""Images, from the registry to the nodes."""

from __future__ import annotations

from boards.model import Board, Panel, Query, Row
from boards.queries import PHASE, each, quantile, rate, share, whole

IMAGES = Board(
    "images",
    "rollbox: images",
    "Digests, copies, conversions, lazy pulls, prefetches, commits, and what nodes have. Mirror, snapshotter and node agents are optional parts.",
    (
        Row(
            "Starts",
            (
                Panel(
                    "Pinned to a digest",
                    [Query(rate("rollbox_image_pins_total", by="outcome"), "{{outcome}}")],
                    "ops",
                    log=True,
                ),
                Panel(
                    "Lazily pulled",
                    [Query(share(rate("rollbox_image_pulls_total", 'how="lazy"'), rate("rollbox_image_pulls_total")))],
                    "percentunit",
                    most=1,
                ),
                Panel(
                    "Pulled whole, and why",
                    [Query(rate("rollbox_image_pulls_total", 'how="full"', "reason"), "{{reason}}")],
                    "ops",
                ),
                Panel(
                    "Copies that starts waited for",
                    [Query(rate("rollbox_image_copies_total", by="outcome"), "{{outcome}}")],
                    "ops",
                    log=True,
                ),
                Panel(
                    "Conversions",
                    [Query(rate("rollbox_image_conversions_total", by="outcome"), "{{outcome}}")],
                    "ops",
                    log=True,
                ),
                Panel(
                    "Image phases of cold starts, p99",
                    [Query(quantile(0.99, PHASE, 'phase=~"copy|convert|pull"', "phase"), "{{phase}}")],
                    "s",
                ),
            ),
        ),
        Row(
            "Prefetches, commits, room",
            (
                Panel(
                    "Prefetches",
                    [Query(rate("rollbox_image_prefetches_total", by="outcome"), "{{outcome}}")],
                    "ops",
                    log=True,
                ),
                Panel(
                    "Commits",
                    [Query(rate("rollbox_image_commits_total", by="outcome"), "{{outcome}}")],
                    "ops",
                    log=True,
                ),
                Panel(
                    "Removals",
                    [Query(rate("rollbox_image_removals_total", by="store, outcome"), "{{store}} {{outcome}}")],
                    "ops",
                    log=True,
                ),
                Panel(
                    "What images take",
                    [
                        Query(whole("rollbox_image_store_bytes", by="store"), "{{store}}"),
                        Query(whole("rollbox_image_store_limit_bytes", by="store"), "{{store}}: limit"),
                    ],
                    "bytes",
                ),
            ),
        ),
        Row(
            "Registry and mirror",
            (
                Panel(
                    "Copies by the mirror",
                    [Query(rate("rollbox_mirror_copies_total", by="outcome"), "{{outcome}}")],
                    "ops",
                    log=True,
                ),
                Panel(
                    "Sent to the private registry",
                    [
                        Query(rate("rollbox_mirror_sent_bytes_total"), "copies"),
                        Query(rate("rollbox_mirror_commit_sent_bytes_total"), "commits to an external one"),
                    ],
                    "Bps",
                ),
                Panel(
                    "Layers that came to nodes with peers",
                    [Query(rate("rollbox_peers_fetches_total", by="from"), "from: {{from}}")],
                    "ops",
                ),
                Panel(
                    "Nodes give one another",
                    [
                        Query(rate("rollbox_peers_sent_bytes_total"), "sent"),
                        Query(rate("rollbox_peers_received_bytes_total"), "received"),
                    ],
                    "Bps",
                ),
                Panel(
                    "Commits to an external registry",
                    [
                        Query(rate("rollbox_mirror_commit_requests_total", by="outcome"), "{{outcome}}"),
                        Query(each("rollbox_mirror_commit_uploads"), "uploads under way"),
                    ],
                    "ops",
                    log=True,
                ),
                Panel(
                    "Waits for a registry's rate limit", [Query(rate("rollbox_mirror_pauses_total"), "pauses")], "ops"
                ),
            ),
        ),
        Row(
            "Bytes of the private registry",
            (
                Panel(
                    "Starts for whose image it had no room",
                    [Query(rate("rollbox_registry_full_starts_total", by="outcome"), "{{outcome}}")],
                    "ops",
                    log=True,
                ),
                Panel("What it has", [Query(whole("rollbox_registry_stored", by="kind"), "{{kind}}")]),
                Panel("Given back", [Query(rate("rollbox_registry_collected_bytes_total"), "collected")], "Bps"),
                Panel(
                    "Collections",
                    [
                        Query(rate("rollbox_registry_collection_seconds_count"), "succeeded"),
                        Query(rate("rollbox_registry_collections_failed_total"), "failed"),
                    ],
                    "ops",
                ),
            ),
        ),
        Row(
            "Nodes",
            (
                Panel(
                    "Layers",
                    [Query(rate("rollbox_snapshotter_layers_total", by="how, reason"), "{{how}} {{reason}}")],
                    "ops",
                ),
                Panel(
                    "Layers mounted again",
                    [Query(rate("rollbox_snapshotter_remounts_total", by="outcome"), "{{outcome}}")],
                    "ops",
                    log=True,
                ),
                Panel(
                    "Reads of lazily mounted files that failed",
                    [Query(rate("rollbox_snapshotter_read_failures_total", by="reason"), "{{reason}}")],
                    "ops",
                ),
                Panel("Healthy parts of nodes", [Query(each("rollbox_node_part_healthy", by="part"), "{{part}}")]),
                Panel(
                    "What keeps sandboxes from starting",
                    [Query(each("rollbox_node_troubles", by="instance"), "{{instance}}")],
                ),
                Panel(
                    "Calls of node agents",
                    [Query(rate("rollbox_node_calls_total", by="call, outcome"), "{{call}} {{outcome}}")],
                    "ops",
                    log=True,
                ),
                Panel(
                    "Calls of node agents, p99",
                    [Query(quantile(0.99, "rollbox_node_call_seconds", by="call"), "{{call}}")],
                    "s",
                ),
                Panel(
                    "Free for images",
                    [
                        Query(
                            share(
                                "min by (instance) (rollbox_node_images_free_bytes{$N})",
                                "min by (instance) (rollbox_node_images_size_bytes{$N})",
                            ),
                            "{{instance}}",
                        )
                    ],
                    "percentunit",
                    most=1,
                ),
            ),
        ),
    ),
)
