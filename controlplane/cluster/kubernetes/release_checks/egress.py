"""A pod that asks the gateway for a sandbox, which tries what egress must refuse and what must work. Pure."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from controlplane.cluster.finding import Finding, finding
from controlplane.cluster.kubernetes import network_check
from controlplane.cluster.kubernetes.release_checks.inside import OTHERWISE
from controlplane.cluster.kubernetes.releases import Release
from controlplane.reach.ways import KUBELET_PORT

Json = Mapping[str, Any]
PROGRAM: Final = ("python3", "-m", "rollbox.egress_check")
# Of the Deployment of egress: what the operator says that sandboxes are to reach.
PROBE: Final = "rollbox.dev/egress-probe"
KEYS: Final = "/etc/rollbox/keys"
ABSENT: Final = "not installed (egress.enabled): sandboxes reach nothing outside, whatever they ask for"
UNKNOWN: Final = "no host to try: egress.probe, or --reach, names one that sandboxes are to reach"

Place = tuple[str, int]


def absent(release: Release) -> Finding:
    """Of a release without egress."""
    return Finding(f"egress of {release.name}", True, ABSENT)


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
    labels = {**network_check.PEER, "app.kubernetes.io/component": "egress-check"}
    made = network_check.pod(
        name,
        release.namespace,
        labels,
        release.image,
        (*PROGRAM, "/dev/termination-log"),
        imagePullSecrets=[{"name": one} for one in release.platform_pull_secrets],
        volumes=[{"name": "keys", "secret": {"secretName": release.api_keys}}],
    )
    (container,) = made["spec"]["containers"]
    settings = {
        "ROLLBOX_URL": "http://{}:{}".format(*places["gateway"]),
        "KEYS": f"{KEYS}/keys",
        "IMAGE": release.image,
        "INSIDE": json.dumps(places),
        "PROBE": probe,
    }
    container["env"] += [{"name": one, "value": value} for one, value in settings.items()]
    container["volumeMounts"] = [{"name": "keys", "mountPath": KEYS, "readOnly": True}]
    return made


def judged(release: Release, status: Json, probe: str) -> Iterator[Finding]:
    """What the pod has found.

    Args:
        release: the release.
        status: of the pod.
        probe: what it was told that sandboxes are to reach.
    """
    ends = [one["state"].get("terminated") or {} for one in status.get("containerStatuses") or ()]
    said, where = (
        str(ends[0].get("message") or ends[0].get("reason") or "") if ends else "",
        f"egress of {release.name}",
    )
    try:
        found: list[dict[str, Any]] = json.loads(said)
        yield from (
            finding(f"{where}: {one['name']}" if one["name"] else where, one["ok"], one["detail"], one["fix"])
            for one in found
        )
    except (ValueError, TypeError, KeyError):
        yield Finding(where, False, f"not tried: the pod ended with {said or 'no message'}", OTHERWISE)
        return
    if not probe:
        yield Finding(f"{where}: allowed host", True, UNKNOWN)
