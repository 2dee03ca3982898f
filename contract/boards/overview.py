"""Whether the installation is well."""

from __future__ import annotations

from boards.model import Board, Panel, Query, Row
from boards.queries import (
    COLD_TOTAL,
    CREATES,
    ENDS,
    EXECS,
    INFRA,
    MASKED,
    NOT_DELETED,
    OF_ENDS,
    PHASE,
    WARM,
    each,
    hourly,
    quantile,
    quantiles,
    rate,
    share,
    whole,
)

OVERVIEW = Board(
    "overview",
    "rollbox: overview",
    "Whether the installation is well: what runs, how it ends, how long starts and commands take.",
    (
        Row(
            "Now",
            (
                Panel("Running", [Query(whole("rollbox_sandboxes", 'state="running"'))], kind="stat"),
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
                    "Sandboxes by state",
                    [Query(whole("rollbox_sandboxes", 'state!="ended"', "state"), "{{state}}")],
                    what="Those that have not ended: ends stay on record for a day, and would hide them.",
                    stacked=True,
                ),
                Panel(
                    "Masked samples by code",
                    [Query(share(rate(ENDS, MASKED, "cause"), rate(ENDS), many=True), "{{cause}}")],
                    "percentunit",
                    what=f"As a part of all ends: {OF_ENDS}.",
                    stacked=True,
                ),
                Panel(
                    "Ends by fault, without deletes",
                    [Query(rate(ENDS, NOT_DELETED, "fault"), "{{fault}}")],
                    "ops",
                    log=True,
                ),
                Panel("Ends by cause", [Query(f"topk(8, {rate(ENDS, by='cause')})", "{{cause}}")], "ops", log=True),
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
                Panel("Commands by end", [Query(rate(EXECS, by="end"), "{{end}}")], "ops", log=True),
                Panel("Commands, from request to answer", quantiles("rollbox_gateway_exec_total_seconds"), "s"),
                Panel(
                    "Answers that are problems, by fault",
                    [Query(rate("rollbox_gateway_errors_total", by="fault"), "{{fault}}")],
                    "ops",
                    log=True,
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
                    log=True,
                ),
                Panel(
                    "Work that one replica does",
                    [Query(each("rollbox_replica_role", by="role"), "{{role}}")],
                    what="Each 1; for seconds 0, when the replica that did it has gone. More than 1: two replicas do it.",
                ),
                Panel(
                    "Webhooks: events",
                    [
                        Query(rate("rollbox_webhook_events_total", by="webhook, outcome"), "{{webhook}}: {{outcome}}"),
                        Query(rate("rollbox_webhook_retries_total", by="webhook"), "{{webhook}}: sent again"),
                        Query(each("rollbox_webhook_queued", by="webhook"), "{{webhook}}: waiting"),
                    ],
                    what="All but sent are dead letters: `rollbox events --dead`. Nothing where there are no webhooks.",
                ),
                Panel(
                    "Webhooks: oldest event that waits",
                    [Query("max by (webhook) (rollbox_webhook_oldest_seconds{$N})", "{{webhook}}")],
                    "s",
                ),
                Panel(
                    "Calls that were refused for their key",
                    [Query(rate("rollbox_calls_refused_total", by="reason"), "{{reason}}")],
                    "ops",
                    log=True,
                    what="Many at once are a client with an old key, or somebody who tries keys: `rollbox audit`.",
                ),
                Panel(
                    "Audit entries that are not kept",
                    [Query(rate("rollbox_audit_lost_total", by="where"), "{{where}}")],
                    "ops",
                ),
                Panel("Streams of events", [Query(each("rollbox_event_streams"), "streams")]),
                Panel("Connected gateways", [Query(each("rollbox_route_feed_subscribers"), "gateways")]),
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
