"""What owners use."""

from __future__ import annotations

from boards.model import Board, Panel, Query, Row
from boards.queries import INFRA, quantile, rate

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
