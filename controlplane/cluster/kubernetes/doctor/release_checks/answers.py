"""What the DNS of a release answers to who asks it as gateways do, against the addresses of pods. Pure."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from controlplane.cluster.check_result import CheckResult, finding
from controlplane.cluster.kubernetes import marks
from controlplane.cluster.kubernetes.doctor import network_check
from controlplane.cluster.kubernetes.doctor.release_checks.inside import OTHERWISE
from controlplane.cluster.kubernetes.doctor.releases import Release
from controlplane.cluster.kubernetes.names.slices import LABEL_MANAGED, LABEL_SERVICE
from controlplane.cluster.kubernetes.pods import podspec
from controlplane.cluster.kubernetes.pods.shard import shard_of

Json = Mapping[str, Any]
PROGRAM: Final = ("python3", "-m", "controlplane.reach.resolving")
ZONE: Final = "ROLLBOX_GATEWAY_DNS_ZONE"
SHARDS: Final = "ROLLBOX_GATEWAY_DNS_SHARDS"
# Of sandboxes: each takes 10 s at most, when nothing is answered, and its answer has to fit into what a pod may tell.
MOST_ASKED: Final = 10
# Nothing sets this condition: the pod has a gateway's labels, for the DNS's policy, and no request must reach it.
NEVER_READY: Final = "rollbox.dev/asks-only"
MEND: Final = (
    "See the pods, the log and the NetworkPolicy of {name}-dns, and docs/runbooks/RollboxDnsDisagreement.md. Until "
    "then gateways find a sandbox by its pushed route alone."
)


def settings(gateway: Json) -> tuple[str, int] | None:
    """The zone of sandboxes' names and the number of shards, from a gateway's Deployment; None: it asks no DNS."""
    environment = {
        str(one["name"]): str(one.get("value") or "")
        for container in gateway["spec"]["template"]["spec"]["containers"]
        for one in container.get("env") or ()
    }
    return (environment[ZONE], int(environment[SHARDS])) if environment.get(ZONE) else None


def named(release: Release, name: str, shards: int) -> dict[str, Any]:
    """A pod that has a sandbox's kind of name, and waits."""
    shard = shard_of(name, shards)
    return network_check.pod(
        name,
        release.sandboxes,
        {**podspec.policy_labels(release.name), marks.LABEL_SHARD: str(shard)},
        release.image,
        (*network_check.PROGRAM, "serve", "$(POD_IP)", str(network_check.OTHER_PORT)),
        hostname=name,
        subdomain=f"shard-{shard}",
        runtimeClassName=release.runtime_class,
        nodeSelector=dict(release.node_selector),
        tolerations=[dict(one) for one in release.tolerations],
        imagePullSecrets=[{"name": one} for one in release.pull_secrets],
    )


def endpoints(release: Release, name: str, shards: int, pod: Json) -> dict[str, Any]:
    """Gives a pod that is ``named`` its name, as the control plane gives sandboxes theirs; it goes with the pod.

    Args:
        release: the release.
        name: of the pod.
        shards: how many headless Services there are.
        pod: the same, with its address.
    """
    about, address = pod["metadata"], str(pod["status"]["podIP"])
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": name,
            "labels": {
                LABEL_SERVICE: f"shard-{shard_of(name, shards)}",
                LABEL_MANAGED: f"doctor.{marks.DOMAIN}",
                marks.LABEL_INSTALLATION: release.name,
            },
            "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": about["name"], "uid": about["uid"]}],
        },
        "addressType": "IPv6" if ":" in address else "IPv4",
        "endpoints": [{"addresses": [address], "hostname": name}],
        "ports": [{"port": network_check.OTHER_PORT}],
    }


def asking(release: Release, name: str, server: str, names: Sequence[str]) -> dict[str, Any]:
    """A pod that asks the DNS, with the labels that its policy lets in.

    Args:
        release: the release.
        name: of the pod.
        server: the address of the DNS.
        names: that it asks for.
    """
    labels = {
        "app.kubernetes.io/name": "rollbox",
        "app.kubernetes.io/instance": release.name,
        "app.kubernetes.io/component": "gateway",
    }
    return network_check.pod(
        name,
        release.namespace,
        labels,
        release.image,
        (*PROGRAM, server, ",".join(names), "/dev/termination-log"),
        readinessGates=[{"conditionType": NEVER_READY}],
        imagePullSecrets=[{"name": one} for one in release.platform_pull_secrets],
    )


def expected(zone: str, pods: Sequence[Json]) -> dict[str, str]:
    """The names of sandboxes that run, and their addresses; of some, where there are many."""
    found: dict[str, str] = {}
    for pod in pods:
        about, spec, address = pod["metadata"], pod["spec"], (pod.get("status") or {}).get("podIP")
        if address and spec.get("subdomain") and "deletionTimestamp" not in about and len(found) < MOST_ASKED:
            found[f"{spec.get('hostname') or about['name']}.{spec['subdomain']}.{zone}"] = str(address)
    return found


def judged(release: Release, own: str, wanted: Mapping[str, str], status: Json) -> CheckResult:
    """Compares answers with addresses.

    Args:
        release: the release.
        own: the name of the doctor's own pod, which is still there.
        wanted: names and addresses; sandboxes among them may have ended, so one without an address is not wrong.
        status: of the pod that has asked.
    """
    ends = [one["state"].get("terminated") or {} for one in status.get("containerStatuses") or ()]
    said = str(ends[0].get("message") or "") if ends else ""
    name, fix = f"name server of {release.name}", MEND.format(name=release.name)
    try:
        answers: Mapping[str, Sequence[str] | None] = dict(json.loads(said))
    except (ValueError, TypeError):
        return CheckResult(name, False, f"not tried: the pod that asks ended with {said or 'no message'}", OTHERWISE)
    wrong = [*_wrong(own, wanted, answers)]
    right = f"answers with the addresses of {len(wanted)} pods, as gateways ask it"
    return finding(name, not wrong, "; ".join(wrong) or right, fix)


def _wrong(own: str, wanted: Mapping[str, str], answers: Mapping[str, Sequence[str] | None]) -> Iterator[str]:
    if all(answers.get(one) is None for one in wanted):
        yield "it answers nothing to a pod with a gateway's labels"
        return
    for name, address in wanted.items():
        answer = answers.get(name)
        if (answer or name == own) and answer != [address]:
            says = "nothing" if answer is None else ", ".join(answer) or "that there is no such name"
            yield f"{name.partition('.')[0]} is at {address}, and it answers {says}"
