"""The panels of the dashboards, as data: what each shows, of which queries, and what it means.

In queries `$N` stands for the selector of the installation, and `$W` for the window of a rate.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Query:
    """One query and the legend of its series."""

    expr: str
    legend: str = ""


@dataclass(frozen=True)
class Panel:
    """One panel.

    Attributes:
        unit: as Grafana calls it.
        kind: `timeseries`, or `stat` for one number.
        what: what it means, and what to look at when it is bad.
        stacked: whether the series add up to something.
        most: the largest value of the axis, where it is known.
    """

    title: str
    queries: Sequence[Query]
    unit: str = "short"
    kind: str = "timeseries"
    what: str = ""
    stacked: bool = False
    most: float | None = None


@dataclass(frozen=True)
class Row:
    """Panels below one heading."""

    title: str
    panels: Sequence[Panel]


@dataclass(frozen=True)
class Board:
    """One dashboard."""

    name: str
    title: str
    what: str
    rows: Sequence[Row]


def rate(name: str, selector: str = "", by: str = "") -> str:
    """The rate of a counter per second, summed over replicas, or by labels."""
    grouping = f" by ({by})" if by else ""
    return f"sum{grouping} (rate({name}{{$N{',' if selector else ''}{selector}}}[$W]))"


def quantile(q: float, name: str, selector: str = "", by: str = "") -> str:
    """A quantile of a histogram over all replicas."""
    return f"histogram_quantile({q}, {rate(name + '_bucket', selector, 'le' + (', ' + by if by else ''))})"


def quantiles(name: str, selector: str = "") -> Sequence[Query]:
    """Median, 90th and 99th percentile."""
    return [Query(quantile(q, name, selector), f"p{100 * q:.0f}") for q in (0.5, 0.9, 0.99)]


def share(part: str, whole: str) -> str:
    """One rate as a part of another; 0 where there is nothing."""
    return f"({part}) / clamp_min({whole}, 1e-9)"


ENDS, PHASE = "rollbox_sandbox_ends_total", "rollbox_create_phase_seconds"
CREATES, EXECS = "rollbox_creates_total", "rollbox_gateway_exec_ends_total"
INFRA = 'fault=~"capacity|platform"'
MASKED, COLD, WARM, POOLED = 'masked="true",cause!="deleted"', 'start="cold"', 'served="warm"', 'pool!=""'
PARTS, COLD_TOTAL = 'phase!="total",start="cold"', 'phase="total",start="cold"'
OF_ENDS = "samples that RL code leaves out, whatever is at fault (docs/faults.md); a delete by the owner is how sandboxes normally end, and does not count"


def hourly(name: str, selector: str = "") -> str:
    """How often something has happened in the last hour."""
    return f"sum(increase({name}{{$N{',' if selector else ''}{selector}}}[1h]))"


OVERVIEW = Board(
    "overview",
    "rollbox: overview",
    "Whether the installation is well: what runs, how it ends, how long starts and commands take.",
    (
        Row(
            "Now",
            (
                Panel("Running", [Query('max(rollbox_sandboxes{$N,state="running"})')], kind="stat"),
                Panel("Creates a minute", [Query(f"60 * {rate(CREATES)}")], kind="stat"),
                Panel(
                    "Masked samples, last hour",
                    [Query(share(hourly(ENDS, MASKED), hourly(ENDS)))],
                    "percentunit",
                    "stat",
                    f"The headline: {OF_ENDS}.",
                ),
                Panel(
                    "Infrastructure faults, last hour",
                    [Query(share(hourly(ENDS, INFRA), hourly(ENDS)))],
                    "percentunit",
                    "stat",
                    "Ends whose fault is the platform's or of capacity. The objective is under 0.5 %.",
                ),
                Panel("Served warm", [Query(share(rate(CREATES, WARM), rate(CREATES)))], "percentunit", "stat"),
                Panel("Cold start, p99", [Query(quantile(0.99, PHASE, COLD_TOTAL))], "s", "stat"),
            ),
        ),
        Row(
            "Sandboxes",
            (
                Panel(
                    "Sandboxes by state", [Query("max by (state) (rollbox_sandboxes{$N})", "{{state}}")], stacked=True
                ),
                Panel(
                    "Masked samples by code",
                    [
                        Query(
                            f"{rate(ENDS, MASKED, 'cause')} / on() group_left() clamp_min({rate(ENDS)}, 1e-9)",
                            "{{cause}}",
                        )
                    ],
                    "percentunit",
                    what=f"As a part of all ends: {OF_ENDS}.",
                    stacked=True,
                ),
                Panel("Ends by fault", [Query(rate(ENDS, by="fault"), "{{fault}}")], "ops", stacked=True),
                Panel("Ends by cause", [Query(f"topk(8, {rate(ENDS, by='cause')})", "{{cause}}")], "ops"),
                Panel(
                    "Creates by how they were served",
                    [Query(rate(CREATES, by="served"), "{{served}}")],
                    "ops",
                    stacked=True,
                ),
                Panel("Cold starts", quantiles(PHASE, COLD_TOTAL), "s"),
            ),
        ),
        Row(
            "Commands",
            (
                Panel("Commands by end", [Query(rate(EXECS, by="end"), "{{end}}")], "ops", stacked=True),
                Panel("Commands, from request to answer", quantiles("rollbox_gateway_exec_total_seconds"), "s"),
                Panel(
                    "Answers that are problems, by fault",
                    [Query(rate("rollbox_gateway_errors_total", by="fault"), "{{fault}}")],
                    "ops",
                ),
            ),
        ),
        Row(
            "Control plane",
            (
                Panel("Store answers", [Query("min(rollbox_store_up{$N})", "of all replicas")], most=1),
                Panel("Failed calls of the store", [Query(rate("rollbox_store_errors_total"), "errors")], "ops"),
                Panel(
                    "API answers",
                    [Query(rate("rollbox_api_answers_total", by="status"), "{{status}}")],
                    "ops",
                    stacked=True,
                ),
                Panel(
                    "Work that one replica does",
                    [Query("sum by (role) (rollbox_replica_role{$N})", "{{role}}")],
                    what="Each 1; for seconds 0, when the replica that did it has gone. More than 1: two replicas do it.",
                ),
                Panel("Connected gateways", [Query("max(rollbox_route_feed_subscribers{$N})", "gateways")]),
                Panel(
                    "Oldest sandbox by state",
                    [
                        Query(
                            'max by (state) (rollbox_sandbox_oldest_seconds{$N,state=~"requested|queued|starting|ending"})',
                            "{{state}}",
                        )
                    ],
                    "s",
                    what="What stays in one of these is stuck.",
                ),
            ),
        ),
    ),
)

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
                    "Ended and not stopped by their node",
                    [Query("max(rollbox_sandboxes_not_stopped{$N})", "sandboxes")],
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
    ),
)

GATEWAY = Board(
    "gateway",
    "rollbox: gateway",
    "Calls, streams, files, routes and connections of the gateways.",
    (
        Row(
            "Calls",
            (
                Panel("Calls under way", [Query("sum by (instance) (rollbox_gateway_calls{$N})", "{{instance}}")]),
                Panel("Commands by end", [Query(rate(EXECS, by="end"), "{{end}}")], "ops", stacked=True),
                Panel(
                    "Problems by code",
                    [Query(f"topk(8, {rate('rollbox_gateway_errors_total', by='code')})", "{{code}}")],
                    "ops",
                ),
                Panel("Commands, from request to answer", quantiles("rollbox_gateway_exec_total_seconds"), "s"),
                Panel(
                    "Forwarded to the control plane",
                    [Query(rate("rollbox_gateway_forwarded_total", by="status"), "{{status}}")],
                    "ops",
                    stacked=True,
                ),
                Panel(
                    "Panics and refused connections",
                    [
                        Query(rate("rollbox_gateway_panics_total"), "panics"),
                        Query(rate("rollbox_gateway_refused_connections_total"), "refused connections"),
                    ],
                    "ops",
                    what="Both should be 0. Connections are refused at the gateway's limit of open files.",
                ),
            ),
        ),
        Row(
            "Data",
            (
                Panel(
                    "Bytes",
                    [
                        Query(
                            rate("rollbox_gateway_stream_bytes_total", by="stream, direction"),
                            "{{stream}} {{direction}}",
                        ),
                        Query(rate("rollbox_gateway_exec_output_bytes_total"), "output of execs"),
                    ],
                    "Bps",
                ),
                Panel(
                    "Open streams",
                    [Query("sum by (stream) (rollbox_gateway_streams_open{$N})", "{{stream}}")],
                    stacked=True,
                ),
                Panel(
                    "Attached clients",
                    [
                        Query(rate("rollbox_gateway_attaches_total", by="kind"), "{{kind}}"),
                        Query(rate("rollbox_gateway_attach_ends_total", by="end"), "end: {{end}}"),
                    ],
                    "ops",
                ),
                Panel(
                    "Files",
                    [Query(rate("rollbox_gateway_files_total", by="operation"), "{{operation}}")],
                    "ops",
                    stacked=True,
                ),
                Panel(
                    "Files by outcome", [Query(rate("rollbox_gateway_files_total", by="outcome"), "{{outcome}}")], "ops"
                ),
                Panel(
                    "Memory of request bodies",
                    [Query("sum by (instance) (rollbox_gateway_body_bytes{$N})", "{{instance}}")],
                    "bytes",
                ),
            ),
        ),
        Row(
            "Routes",
            (
                Panel(
                    "Routes and tombstones",
                    [
                        Query("max(rollbox_gateway_routes{$N})", "routes"),
                        Query("max(rollbox_gateway_tombstones{$N})", "tombstones"),
                    ],
                ),
                Panel("Route lag", quantiles("rollbox_gateway_route_lag_seconds"), "s"),
                Panel(
                    "Since the feed's last message",
                    [Query("max by (instance) (rollbox_gateway_route_feed_age_seconds{$N})", "{{instance}}")],
                    "s",
                ),
                Panel(
                    "Feed",
                    [
                        Query("sum(rollbox_gateway_route_feed_connected{$N})", "connected gateways"),
                        Query(rate("rollbox_gateway_route_feed_reconnects_total"), "reconnects/s"),
                        Query(rate("rollbox_gateway_route_feed_fenced_total"), "fenced/s"),
                    ],
                ),
                Panel(
                    "Routes compared with DNS",
                    [
                        Query(rate("rollbox_gateway_dns_checks_total", by="outcome"), "{{outcome}}"),
                        Query(rate("rollbox_gateway_dns_disagreements_total"), "contradicted"),
                    ],
                    "ops",
                ),
                Panel(
                    "Routes found",
                    [Query(rate("rollbox_gateway_routes_resolved_total", by="source"), "{{source}}")],
                    "ops",
                ),
            ),
        ),
        Row(
            "Connections",
            (
                Panel(
                    "Of clients", [Query("sum by (instance) (rollbox_gateway_client_connections{$N})", "{{instance}}")]
                ),
                Panel(
                    "To sidecars",
                    [Query("sum by (instance) (rollbox_gateway_upstream_connections{$N})", "{{instance}}")],
                ),
                Panel(
                    "Attempts to connect to sidecars",
                    [Query(rate("rollbox_gateway_upstream_connects_total", by="outcome"), "{{outcome}}")],
                    "ops",
                ),
                Panel("Replicas that drain", [Query("sum(rollbox_gateway_draining{$N})", "gateways")]),
            ),
        ),
    ),
)

IMAGES = Board(
    "images",
    "rollbox: images",
    "Digests, copies, conversions, lazy pulls, prefetches, commits, and what nodes have. Mirror, snapshotter and node agents are optional parts.",
    (
        Row(
            "Starts",
            (
                Panel(
                    "Pinned to a digest", [Query(rate("rollbox_image_pins_total", by="outcome"), "{{outcome}}")], "ops"
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
                ),
                Panel(
                    "Conversions", [Query(rate("rollbox_image_conversions_total", by="outcome"), "{{outcome}}")], "ops"
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
                    "Prefetches", [Query(rate("rollbox_image_prefetches_total", by="outcome"), "{{outcome}}")], "ops"
                ),
                Panel("Commits", [Query(rate("rollbox_image_commits_total", by="outcome"), "{{outcome}}")], "ops"),
                Panel(
                    "Removals",
                    [Query(rate("rollbox_image_removals_total", by="store, outcome"), "{{store}} {{outcome}}")],
                    "ops",
                ),
                Panel(
                    "What images take",
                    [
                        Query("max by (store) (rollbox_image_store_bytes{$N})", "{{store}}"),
                        Query("max by (store) (rollbox_image_store_limit_bytes{$N})", "{{store}}: limit"),
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
                ),
                Panel("Sent to the private registry", [Query(rate("rollbox_mirror_sent_bytes_total"), "sent")], "Bps"),
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
                ),
                Panel("What it has", [Query("max by (kind) (rollbox_registry_stored{$N})", "{{kind}}")]),
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
                ),
                Panel(
                    "Reads of lazily mounted files that failed",
                    [Query(rate("rollbox_snapshotter_read_failures_total", by="reason"), "{{reason}}")],
                    "ops",
                ),
                Panel("Healthy parts of nodes", [Query("sum by (part) (rollbox_node_part_healthy{$N})", "{{part}}")]),
                Panel(
                    "What keeps sandboxes from starting",
                    [Query("sum by (instance) (rollbox_node_troubles{$N})", "{{instance}}")],
                ),
                Panel(
                    "Calls of node agents",
                    [Query(rate("rollbox_node_calls_total", by="call, outcome"), "{{call}} {{outcome}}")],
                    "ops",
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
                            "min by (instance) (rollbox_node_images_free_bytes{$N} / rollbox_node_images_size_bytes{$N})",
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

TENANTS = Board(
    "tenants",
    "rollbox: tenants",
    "What owners use, may use and wait for, and how their sandboxes end.",
    (
        Row(
            "Use",
            (
                Panel(
                    "Sandboxes by owner",
                    [Query("topk(12, max by (owner) (rollbox_owner_sandboxes{$N}))", "{{owner}}")],
                    stacked=True,
                ),
                Panel(
                    "Quota used, the fullest resource",
                    [
                        Query(
                            "max by (owner) (max by (owner, resource) (rollbox_quota_used{$N}) / max by (owner, resource) (rollbox_quota_limit{$N}))",
                            "{{owner}}",
                        )
                    ],
                    "percentunit",
                    what="Of owners with a quota of their own. At 100 % their creates wait.",
                    most=1,
                ),
                Panel(
                    "Quota used by resource",
                    [
                        Query(
                            "max by (owner, resource) (rollbox_quota_used{$N}) / max by (owner, resource) (rollbox_quota_limit{$N})",
                            "{{owner}} {{resource}}",
                        )
                    ],
                    "percentunit",
                ),
            ),
        ),
        Row(
            "Waits",
            (
                Panel("Creates that wait", [Query("sum(rollbox_creates_waiting{$N})", "creates")]),
                Panel(
                    "Waits that ended",
                    [Query(rate("rollbox_create_wait_seconds_count", by="room, outcome"), "{{room}} {{outcome}}")],
                    "ops",
                ),
                Panel("Waits, p90", [Query(quantile(0.9, "rollbox_create_wait_seconds", by="room"), "{{room}}")], "s"),
            ),
        ),
        Row(
            "Ends",
            (
                Panel(
                    "Ends by owner",
                    [Query(f"topk(12, {rate('rollbox_owner_ends_total', by='owner')})", "{{owner}}")],
                    "ops",
                    stacked=True,
                ),
                Panel(
                    "Ends by fault",
                    [Query(rate("rollbox_owner_ends_total", by="fault"), "{{fault}}")],
                    "ops",
                    stacked=True,
                ),
                Panel(
                    "Infrastructure faults by owner",
                    [
                        Query(
                            f"{rate('rollbox_owner_ends_total', INFRA, 'owner')} / clamp_min({rate('rollbox_owner_ends_total', by='owner')}, 1e-9)",
                            "{{owner}}",
                        )
                    ],
                    "percentunit",
                    what="Of an owner with many ends that are not its own doing, look at its images and sizes first.",
                ),
            ),
        ),
    ),
)

BOARDS = (OVERVIEW, SLOW, POOLS, GATEWAY, IMAGES, TENANTS)
