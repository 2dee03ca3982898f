"""For each alert: series that fire it, and nearby ones that do not, a sample a minute, as promtool writes them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

N = 'namespace="n"'
ENDS = f"rollbox_sandbox_ends_total{{{N}"


@dataclass(frozen=True)
class Case:
    """Series -> values that fire an alert within an hour, and that do not."""

    fires: Mapping[str, str]
    rests: Mapping[str, str]


def ends(**by_cause: str) -> Mapping[str, str]:
    """Ended sandboxes; `cause_fault_masked` -> values."""
    made = {}
    for name, values in by_cause.items():
        cause, fault, masked = name.split("__")
        made[f'{ENDS},cause="{cause}",fault="{fault}",masked="{masked}"}}'] = values
    return made


def one(name: str, fires: str, rests: str, labels: str = "") -> Case:
    """One series."""
    series = f"{name}{{{N}{',' if labels else ''}{labels}}}"
    return Case({series: fires}, {series: rests})


def buckets(name: str, labels: str, **by_bound: str) -> Mapping[str, str]:
    """A histogram's buckets; `le_1` -> values."""
    bounds = {bound: bound.removeprefix("le_").replace("_", ".").replace("inf", "+Inf") for bound in by_bound}
    return {f'{name}_bucket{{{N}{labels},le="{bounds[bound]}"}}': values for bound, values in by_bound.items()}


def attempts(**by_verdict: str) -> Mapping[str, str]:
    """What programs of sandboxes tried; verdict -> values."""
    labels = f'{{{N},instance="e",protocol="connect"'
    return {f'rollbox_egress_attempts_total{labels},verdict="{one}"}}': values for one, values in by_verdict.items()}


def packages(**by_result: str) -> Mapping[str, str]:
    """What the package cache was asked for; result -> values."""
    labels = f'{{{N},instance="e",index="pypi.org"'
    return {
        f'rollbox_egress_packages_requests_total{labels},result="{one}"}}': values for one, values in by_result.items()
    }


START, WAIT = "rollbox_create_phase_seconds", "rollbox_create_wait_seconds"
COLD = ',phase="total",start="cold"'
OF_QUOTA = ',room="sandboxes",outcome="admitted"'
CASES: Mapping[str, Case] = {
    "RollboxMaskedSamples": Case(
        ends(ttl_expired__caller__true="0+1x90", deleted__caller__true="0+9x90"),
        ends(ttl_expired__caller__true="0+1x90", deleted__caller__true="0+99x90"),
    ),
    # One fault in a hundred; of one in a thousand nobody is told, and neither of a single one.
    "RollboxInfraFaults": Case(
        ends(node_lost__platform__true="0+1x90", deleted__caller__true="0+99x90"),
        ends(node_lost__platform__true="0+1x90", deleted__caller__true="0+999x90"),
    ),
    "RollboxSandboxesStuck": one("rollbox_sandbox_oldest_seconds", "0+60x90", "0+6x90", 'state="ending"'),
    "RollboxSandboxesNotStopped": one("rollbox_sandboxes_not_stopped", "2x90", "0x90"),
    "RollboxPoolDry": Case(
        {
            f'rollbox_pool_sandboxes{{{N},pool="p",what="{what}"}}': v
            for what, v in (("ready", "0x90"), ("wanted", "4x90"))
        },
        # One that wants none is not dry.
        {
            f'rollbox_pool_sandboxes{{{N},pool="p",what="{what}"}}': v
            for what, v in (("ready", "0x90"), ("wanted", "0x90"))
        },
    ),
    "RollboxSlowStarts": Case(
        buckets(START, COLD, le_10="0+8x90", le_30="0+10x90", le_inf="0+10x90"),
        buckets(START, COLD, le_10="0+10x90", le_30="0+10x90", le_inf="0+10x90"),
    ),
    "RollboxQuotaWaits": Case(
        buckets(WAIT, OF_QUOTA, le_60="0+1x90", le_120="0+10x90", le_inf="0+10x90"),
        buckets(WAIT, OF_QUOTA, le_60="0+10x90", le_120="0+10x90", le_inf="0+10x90"),
    ),
    "RollboxOutOfRoom": one("rollbox_starts_unplaced", "3x90", "0x90"),
    "RollboxScalerOutOfRoom": one("rollbox_scaler_unplaced", "3x90", "0x90"),
    "RollboxNodeProviderFailing": Case(
        {f'rollbox_scaler_failures_total{{{N},node_pool="a",cause="upstream_timeout"}}': "0+1x90"},
        # A change that came between is decided anew.
        {f'rollbox_scaler_failures_total{{{N},node_pool="a",cause="conflict"}}': "0+1x90"},
    ),
    "RollboxRouteLag": Case(
        buckets("rollbox_gateway_route_lag_seconds", "", le_1="0+1x90", le_10="0+10x90", le_inf="0+10x90"),
        buckets("rollbox_gateway_route_lag_seconds", "", le_1="0+10x90", le_10="0+10x90", le_inf="0+10x90"),
    ),
    "RollboxRouteFeedLost": one("rollbox_gateway_route_feed_connected", "0x90", "1x90", 'instance="g"'),
    "RollboxDnsDisagreement": one("rollbox_gateway_dns_checks_total", "0+1x90", "3x90", 'outcome="disagree"'),
    "RollboxGatewayPanics": one("rollbox_gateway_panics_total", "0x50 1x40", "1x90"),
    "RollboxMetricsAbsent": Case({}, {f'rollbox_store_up{{{N},instance="c"}}': "1x90"}),
    "RollboxStoreDown": one("rollbox_store_up", "0x90", "1x90", 'instance="c"'),
    "RollboxStoreSlow": Case(
        buckets("rollbox_store_call_seconds", "", le_0_25="0+1x90", le_1="0+10x90", le_inf="0+10x90"),
        buckets("rollbox_store_call_seconds", "", le_0_25="0+10x90", le_1="0+10x90", le_inf="0+10x90"),
    ),
    "RollboxSweepVacant": Case(
        {f'rollbox_replica_role{{{N},role="sweep",instance="{name}"}}': "0x90" for name in "ab"},
        # One replica alone on an engine has no such work.
        {f'rollbox_replica_role{{{N},role="sweep",instance="a"}}': "0x90"},
    ),
    "RollboxQuotaMiscounted": one("rollbox_quota_miscounts_total", "0x30 1x60", "1x90"),
    "RollboxSnapshotterUnhealthy": one("rollbox_node_part_healthy", "0x90", "1x90", 'instance="a",part="mounts"'),
    "RollboxNodeTroubles": one("rollbox_node_troubles", "1x90", "0x90", 'instance="a"'),
    "RollboxImageStoreNearlyFull": Case(
        {
            f'kubelet_volume_stats_{what}_bytes{{{N},persistentvolumeclaim="data-rollbox-registry-0"}}': value
            for what, value in (("available", "10x90"), ("capacity", "100x90"))
        },
        # No limit.
        {
            f'rollbox_image_store_bytes{{{N},store="node"}}': "900x90",
            f'rollbox_image_store_limit_bytes{{{N},store="node"}}': "0x90",
        },
    ),
    "RollboxWebhooksFailing": Case(
        {f'rollbox_webhook_events_total{{{N},webhook="ops",outcome="refused"}}': "0+1x90"},
        {
            f'rollbox_webhook_events_total{{{N},webhook="ops",outcome="sent"}}': "0+9x90",
            f'rollbox_webhook_events_total{{{N},webhook="ops",outcome="refused"}}': "3x90",
            f'rollbox_webhook_oldest_seconds{{{N},webhook="ops"}}': "60x90",
        },
    ),
    "RollboxConversionsFailing": Case(
        {f'rollbox_image_conversions_total{{{N},outcome="failed"}}': "0+1x90"},
        {
            f'rollbox_image_conversions_total{{{N},outcome="failed"}}': "0+1x90",
            f'rollbox_image_conversions_total{{{N},outcome="offered"}}': "0+9x90",
        },
    ),
    "RollboxCopiesFailing": one("rollbox_image_copies_total", "0+1x90", "3x90", 'outcome="away"'),
    # Whatever the caller has done wrong fires nothing.
    "RollboxCommitsFailing": Case(
        {f'rollbox_image_commits_total{{{N},outcome="internal"}}': "0+1x90"},
        {f'rollbox_image_commits_total{{{N},outcome="quota_exceeded"}}': "0+1x90"},
    ),
    "RollboxEgressDown": one("rollbox_egress_unserved", "2x90", "0x90", 'instance="c"'),
    "RollboxEgressLinksDown": Case(
        {
            f'rollbox_egress_{what}{{{N},instance="e"}}': value
            for what, value in (("links", "8x90"), ("sandboxes", "10x90"))
        },
        {
            f'rollbox_egress_{what}{{{N},instance="e"}}': value
            for what, value in (("links", "0x90"), ("sandboxes", "0x90"))
        },
    ),
    "RollboxEgressFeedLost": Case(
        {f'rollbox_egress_{what}{{{N},instance="e"}}': "0x90" for what in ("feed_connected", "draining")},
        # One that stops has ended its feed itself.
        {
            f'rollbox_egress_{what}{{{N},instance="e"}}': value
            for what, value in (("feed_connected", "0x90"), ("draining", "1x90"))
        },
    ),
    "RollboxEgressFeedRefused": one("rollbox_egress_feed_refused_total", "0+1x90", "3x90", 'instance="c"'),
    # Half of what may be reached. Names that are not there say nothing of the name server, however many they are.
    "RollboxEgressResolverFailing": Case(
        attempts(name_server_silent="0+10x90", allowed="0+5x90"),
        attempts(name_server_silent="0+10x90", unresolved="0+20x90"),
    ),
    "RollboxEgressRefusals": Case(attempts(denied_name="0+900x90"), attempts(denied_name="0+300x90")),
    "RollboxEgressFull": Case(
        attempts(denied_limit="0+20x90", allowed="0+100x90"), attempts(denied_limit="0+5x90", allowed="0+100x90")
    ),
    # Half of what is asked of it. What it has not, and what it must not give, are no fault of its.
    "RollboxPackageCacheFailing": Case(
        packages(silent="0+5x90", error="0+5x90", hit="0+5x90"),
        packages(silent="0+5x90", refused="0+5x90", hit="0+5x90"),
    ),
    "RollboxEgressUnrecorded": one("rollbox_egress_attempts_unreported_total", "0+1x90", "3x90", 'instance="e"'),
}
# What is there in every installation that is well.
WELL = {f'rollbox_store_up{{{N},instance="c"}}': "1x90"}
