"""What owners use."""

from __future__ import annotations

from boards.model import Board, Panel, Query, Row
from boards.queries import INFRA, each, quantile, rate, share, whole

OWNER_ENDS = "rollbox_owner_ends_total"
QUOTA_USED = share(
    whole("rollbox_quota_used", by="owner, resource"), whole("rollbox_quota_limit", by="owner, resource")
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
                    [Query(f"topk(12, {whole('rollbox_owner_sandboxes', by='owner')})", "{{owner}}")],
                    stacked=True,
                ),
                Panel(
                    "Quota used, the fullest resource",
                    [
                        Query(
                            f"max by (owner) ({QUOTA_USED})",
                            "{{owner}}",
                        )
                    ],
                    "percentunit",
                    what="Of owners with a quota of their own. At 100 % their creates wait.",
                    most=1,
                ),
                Panel(
                    "Quota used by resource",
                    [Query(QUOTA_USED, "{{owner}} {{resource}}")],
                    "percentunit",
                ),
            ),
        ),
        Row(
            "Waits",
            (
                Panel("Creates that wait", [Query(each("rollbox_creates_waiting"), "creates")]),
                Panel(
                    "Waits that ended",
                    [Query(rate("rollbox_create_wait_seconds_count", by="room, outcome"), "{{room}} {{outcome}}")],
                    "ops",
                    log=True,
                ),
                Panel("Waits, p90", [Query(quantile(0.9, "rollbox_create_wait_seconds", by="room"), "{{room}}")], "s"),
            ),
        ),
        Row(
            "Ends",
            (
                Panel(
                    "Ends by owner",
                    [Query(f"topk(12, {rate(OWNER_ENDS, by='owner')})", "{{owner}}")],
                    "ops",
                    stacked=True,
                ),
                Panel(
                    "Ends by fault",
                    [Query(rate(OWNER_ENDS, by="fault"), "{{fault}}")],
                    "ops",
                    log=True,
                ),
                Panel(
                    "Infrastructure faults by owner",
                    [Query(share(rate(OWNER_ENDS, INFRA, "owner"), rate(OWNER_ENDS, by="owner")), "{{owner}}")],
                    "percentunit",
                    what="Of an owner with many ends that are not its own doing, look at its images and sizes first.",
                ),
            ),
        ),
    ),
)
