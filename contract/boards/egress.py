"""The part that reaches the network for sandboxes."""

from __future__ import annotations

from boards.model import Board, Panel, Query, Row
from boards.queries import each, quantiles, rate, whole

ATTEMPTS, OPENS = "rollbox_egress_attempts_total", "rollbox_egress_link_opens_total"
PACKAGES = "rollbox_egress_packages_requests_total"

EGRESS = Board(
    "egress",
    "rollbox: egress",
    "Links to sandboxes, what their programs try to reach, and how soon a policy is in force.",
    (
        Row(
            "Connections",
            (
                Panel(
                    "Attempts by verdict",
                    [Query(rate(ATTEMPTS, by="verdict"), "{{verdict}}")],
                    "ops",
                    log=True,
                    what="What a sandbox tried, and by which rule it was decided: `rollbox egress log ID`.",
                ),
                Panel(
                    "Refused or ended by a limit",
                    [Query(rate("rollbox_egress_limited_total", by="limit"), "{{limit}}")],
                    "ops",
                    stacked=True,
                    what="Those that begin with owner are of quotas, replica is the chart's egress.limits.connections, the others are the policy's.",
                ),
                Panel(
                    "Attempts by protocol", [Query(rate(ATTEMPTS, by="protocol"), "{{protocol}}")], "ops", stacked=True
                ),
                Panel(
                    "Bytes", [Query(rate("rollbox_egress_moved_bytes_total", by="direction"), "{{direction}}")], "Bps"
                ),
                Panel(
                    "Open connections",
                    [Query(each("rollbox_egress_connections_open", by="instance"), "{{instance}}")],
                ),
                Panel("Set-up of a connection", quantiles("rollbox_egress_setup_seconds"), "s"),
                Panel("Look-ups of names", quantiles("rollbox_egress_lookup_seconds"), "s"),
            ),
        ),
        Row(
            "Package cache",
            (
                Panel(
                    "Requests by result",
                    [Query(rate(PACKAGES, by="result"), "{{result}}")],
                    "ops",
                    log=True,
                    what="hit: of what is kept; miss: the index was asked; stale: of what is kept, since the index fails; error: it fails, and nothing is kept; silent: the cache does not answer. Nothing where egress.packages.enabled is false.",
                ),
                Panel("Requests by index", [Query(rate(PACKAGES, by="index"), "{{index}}")], "ops", stacked=True),
                Panel("Bytes", [Query(rate("rollbox_egress_packages_bytes_total", by="result"), "{{result}}")], "Bps"),
                Panel(
                    "Until it answers",
                    quantiles("rollbox_egress_packages_seconds"),
                    "s",
                    what="Until the head of the answer; a file is still to come then.",
                ),
            ),
        ),
        Row(
            "Sandboxes",
            (
                Panel(
                    "Links",
                    [
                        Query(each("rollbox_egress_links"), "up"),
                        Query(each("rollbox_egress_sandboxes"), "wanted"),
                        Query(whole("rollbox_egress_unserved"), "without a replica"),
                    ],
                    what="Up and wanted should be the same, and none without a replica: a sandbox without its link has no network, whatever its policy says.",
                ),
                Panel("Attempts to open a link", [Query(rate(OPENS, by="outcome"), "{{outcome}}")], "ops", log=True),
                Panel("From a new policy until it is in force", quantiles("rollbox_egress_switch_seconds"), "s"),
                Panel(
                    "What callers wait for a policy",
                    quantiles("rollbox_egress_wait_seconds"),
                    "s",
                    what="From the control plane's record to the word of the egress replica: creates and switches.",
                ),
                Panel(
                    "Waits for a policy by outcome",
                    [Query(rate("rollbox_egress_wait_seconds_count", by="outcome"), "{{outcome}}")],
                    "ops",
                    log=True,
                    what="A caller of one that is late is told `egress_unavailable`.",
                ),
                Panel(
                    "Replicas",
                    [
                        Query(each("rollbox_egress_feed_connected"), "with a feed"),
                        Query(each("rollbox_egress_draining"), "draining"),
                    ],
                ),
                Panel(
                    "Losses",
                    [
                        Query(rate("rollbox_egress_feed_reconnects_total"), "feeds"),
                        Query(rate("rollbox_egress_attempts_unreported_total"), "attempts that are not on record"),
                        Query(rate("rollbox_egress_attempts_lost_total"), "attempts that the store did not take"),
                        Query(rate("rollbox_egress_feed_refused_total"), "feeds that were asked for without their key"),
                    ],
                    "ops",
                    what="All should be 0.",
                ),
            ),
        ),
    ),
)
