"""Whether the parts of a release are ready, and run what they should. Pure."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from controlplane.cluster.check_result import CheckResult, finding

Json = Mapping[str, Any]
COMPONENT: Final = "app.kubernetes.io/component"
VERSION: Final = "app.kubernetes.io/version"
SEE: Final = (
    "`kubectl -n {namespace} get pods`, and the log of the pod that is not ready. Nothing starts without control "
    "plane, Redis and gateway; no image is copied or converted without mirror and registry."
)
ROLL: Final = (
    "`kubectl -n {namespace} rollout status` says what a rollout waits for; end it, or take it back with "
    "`helm rollback`. Parts of two versions work together for the time of an upgrade only."
)


def ready(name: str, namespace: str, owners: Sequence[Json]) -> CheckResult:
    """Whether each Deployment, StatefulSet and DaemonSet of a release has all its pods ready."""
    short = [f"{_part(one)}: {have} of {want} ready" for one in owners for want, have in [_counts(one)] if have < want]
    # What is scaled away answers as little as what has failed.
    short += [f"{_part(one)}: scaled to none" for one in owners if one["spec"].get("replicas") == 0]
    parts = ", ".join(sorted({_part(one) for one in owners}))
    detail = "; ".join(short) if short else f"all pods are ready: {parts}"
    return finding(f"parts of {name}", not short, detail, SEE.format(namespace=namespace))


def versions(name: str, namespace: str, owners: Sequence[Json], pods: Sequence[Json]) -> CheckResult:
    """Whether all parts are of one version of the chart, and each pod runs the images that its part names.

    Args:
        name: of the release.
        namespace: of its parts.
        owners: its Deployments, StatefulSets and DaemonSets.
        pods: those of its parts.
    """
    told = sorted({str(one["metadata"]["labels"].get(VERSION)) for one in owners})
    odd = [f"the parts are of the versions {', '.join(told)}"] if len(told) > 1 else []
    odd += _other_images(owners, pods)
    detail = "; ".join(odd) if odd else f"all parts are of version {', '.join(told)}, and run what they name"
    return finding(f"versions of {name}", not odd, detail, ROLL.format(namespace=namespace))


def _other_images(owners: Iterable[Json], pods: Iterable[Json]) -> Iterator[str]:
    named = {_part(one): _images(one["spec"]["template"]["spec"]) for one in owners}
    for pod in pods:
        part = _part(pod)
        # What a mesh adds to a pod is nobody's concern here.
        runs = _images(pod["spec"])
        for container, image in named.get(part, {}).items():
            if container in runs and runs[container] != image:
                yield f"{pod['metadata']['name']} runs {runs[container]}, and {part} names {image}"


def _images(spec: Json) -> Mapping[str, str]:
    return {str(one["name"]): str(one["image"]) for one in spec["containers"]}


def _part(thing: Json) -> str:
    return str((thing["metadata"].get("labels") or {}).get(COMPONENT) or thing["metadata"]["name"])


def _counts(owner: Json) -> tuple[int, int]:
    status = owner.get("status") or {}
    if "desiredNumberScheduled" in status:
        return int(status["desiredNumberScheduled"]), int(status.get("numberReady") or 0)
    return int(owner["spec"].get("replicas", 1)), int(status.get("readyReplicas") or 0)
