"""The gateways."""

from __future__ import annotations

from boards.model import Board, Panel, Query, Row
from boards.queries import EXECS, each, quantiles, rate, whole

GATEWAY = Board(
    "gateway",
    "rollbox: gateway",
    "Calls, streams, files, routes and connections of the gateways.",
    (
        Row(
            "Calls",
            (
                Panel("Calls under way", [Query(each("rollbox_gateway_calls", by="instance"), "{{instance}}")]),
                Panel("Commands by end", [Query(rate(EXECS, by="end"), "{{end}}")], "ops", log=True),
                Panel(
                    "Problems by code",
                    [Query(f"topk(8, {rate('rollbox_gateway_errors_total', by='code')})", "{{code}}")],
                    "ops",
                    log=True,
                ),
                Panel("Commands, from request to answer", quantiles("rollbox_gateway_exec_total_seconds"), "s"),
                Panel(
                    "Forwarded to the control plane",
                    [Query(rate("rollbox_gateway_forwarded_total", by="status"), "{{status}}")],
                    "ops",
                    log=True,
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
                    [Query(each("rollbox_gateway_streams_open", by="stream"), "{{stream}}")],
                    stacked=True,
                ),
                Panel(
                    "Attached clients",
                    [
                        Query(rate("rollbox_gateway_attaches_total", by="kind"), "{{kind}}"),
                        Query(rate("rollbox_gateway_attach_ends_total", by="end"), "end: {{end}}"),
                    ],
                    "ops",
                    log=True,
                ),
                Panel(
                    "Files",
                    [Query(rate("rollbox_gateway_files_total", by="operation"), "{{operation}}")],
                    "ops",
                    stacked=True,
                ),
                Panel(
                    "Files by outcome",
                    [Query(rate("rollbox_gateway_files_total", by="outcome"), "{{outcome}}")],
                    "ops",
                    log=True,
                ),
                Panel(
                    "Memory of request bodies",
                    [Query(each("rollbox_gateway_body_bytes", by="instance"), "{{instance}}")],
                    "bytes",
                ),
            ),
        ),
        Row(
            "Routes",
            (
                Panel("Routes", [Query(whole("rollbox_gateway_routes"), "live sandboxes")]),
                Panel("Tombstones", [Query(whole("rollbox_gateway_tombstones"), "ended sandboxes")]),
                Panel("Route lag", quantiles("rollbox_gateway_route_lag_seconds"), "s"),
                Panel(
                    "Since the feed's last message",
                    [Query("max by (instance) (rollbox_gateway_route_feed_age_seconds{$N})", "{{instance}}")],
                    "s",
                ),
                Panel(
                    "Feed",
                    [
                        Query(each("rollbox_gateway_route_feed_connected"), "connected gateways"),
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
                    log=True,
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
                Panel("Of clients", [Query(each("rollbox_gateway_client_connections", by="instance"), "{{instance}}")]),
                Panel(
                    "To sidecars",
                    [Query(each("rollbox_gateway_upstream_connections", by="instance"), "{{instance}}")],
                ),
                Panel(
                    "Attempts to connect to sidecars",
                    [Query(rate("rollbox_gateway_upstream_connects_total", by="outcome"), "{{outcome}}")],
                    "ops",
                    log=True,
                ),
                Panel("Replicas that drain", [Query(each("rollbox_gateway_draining"), "gateways")]),
            ),
        ),
    ),
)
