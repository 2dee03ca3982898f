"""A pod that asks the gateway for a sandbox, which tries what egress must refuse and what must work. Pure."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from controlplane.cluster.check_result import CheckResult, finding
from controlplane.cluster.kubernetes.doctor.release_checks import asking
from controlplane.cluster.kubernetes.doctor.release_checks.asking import Place
from controlplane.cluster.kubernetes.doctor.release_checks.inside import OTHERWISE
from controlplane.cluster.kubernetes.doctor.releases import Release
from controlplane.reach.ways import KUBELET_PORT

Json = Mapping[str, Any]
PROGRAM: Final = ("python3", "-m", "rollbox.egress_check")
# Of the Deployment of egress: what the operator says that sandboxes are to reach.
PROBE: Final = "rollbox.dev/egress-probe"
ABSENT: Final = "not installed (egress.enabled): sandboxes reach nothing outside, whatever they ask for"
UNKNOWN: Final = "no host to try: egress.probe, or --reach, names one that sandboxes are to reach"


def absent(release: Release) -> CheckResult:
    """Of a release without egress."""
    return CheckResult(f"egress of {release.name}", True, ABSENT)


def inside(
    api: Place, slices: Sequence[Json], servers: Sequence[Json], gateway: Place, nodes: Sequence[Json]
) -> dict[str, Place]:
    """What no sandbox may reach, by name: also addresses that are public, of which egress cannot know by itself.

    Args:
        api: the Service of the API server.
        slices: its EndpointSlices.
        servers: the Services of the cluster's DNS.
        gateway: the Service of the gateway.
        nodes: of the cluster; one of them stands for all.
    """
    found = {"API server": api, "gateway": gateway}
    for one in slices:
        port = next((int(port["port"]) for port in one.get("ports") or ()), api[1])
        for endpoint in one.get("endpoints") or ():
            found["API server's own address"] = (str(endpoint["addresses"][0]), port)
    for one in servers:
        found["cluster DNS"] = (str(one["spec"]["clusterIP"]), 53)
    kinds = {"InternalIP": "kubelet", "ExternalIP": "kubelet, by its node's public address"}
    for address in (one for node in nodes[:1] for one in node["status"].get("addresses") or ()):
        if address["type"] in kinds:
            found[kinds[address["type"]]] = (str(address["address"]), KUBELET_PORT)
    return found


def manifest(release: Release, name: str, places: Mapping[str, Place], probe: str) -> dict[str, Any]:
    """The pod.

    Args:
        release: the release.
        name: of the pod.
        places: what no sandbox may reach.
        probe: what sandboxes are to reach; empty: nothing is known.
    """
    settings = {"INSIDE": json.dumps(places), "PROBE": probe}
    return asking.manifest(release, name, PROGRAM, places["gateway"], settings)


def judged(release: Release, status: Json, probe: str) -> Iterator[CheckResult]:
    """What the pod has found.

    Args:
        release: the release.
        status: of the pod.
        probe: what it was told that sandboxes are to reach.
    """
    where = f"egress of {release.name}"
    try:
        for name, ok, detail, fix in asking.told(status):
            yield finding(f"{where}: {name}" if name else where, ok, detail, fix)
    except ValueError:
        detail = f"not tried: the pod ended with {asking.said(status) or 'no message'}"
        yield CheckResult(where, False, detail, OTHERWISE)
        return
    if not probe:
        yield CheckResult(f"{where}: allowed host", True, UNKNOWN)
