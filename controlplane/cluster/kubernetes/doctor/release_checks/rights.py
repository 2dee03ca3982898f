"""Whether the control plane of a release has the rights that it needs: the API server is asked for each."""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from controlplane.cluster.check_result import CheckResult, finding
from controlplane.cluster.kubernetes.api_server.client import KubernetesClient
from controlplane.cluster.kubernetes.doctor.releases import Release

REVIEWS: Final = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
MEND: Final = (
    "`helm upgrade` with the values of the release puts its Roles and bindings back; with RBAC of your own, grant what "
    "is named to the ServiceAccount {account} in {namespace}."
)


@dataclass(frozen=True, slots=True)
class Right:
    """One right.

    Attributes:
        namespace: empty: in the whole cluster.
        group: of the API; empty: the core's.
    """

    verb: str
    group: str
    resource: str
    namespace: str = ""
    name: str = ""

    def __str__(self) -> str:
        where = f" in {self.namespace}" if self.namespace else ""
        return f"{self.verb} {self.resource}{'.' if self.group else ''}{self.group}{where}"


def needed(release: Release) -> Iterator[Right]:
    """What the control plane of a release must be allowed. Pure."""
    within = release.sandboxes
    for verb in ("create", "get", "list", "watch", "patch", "delete"):
        yield Right(verb, "", "pods", within)
        yield Right(verb, "rollbox.dev", "sandboxpools", within)
        yield Right(verb, "rollbox.dev", "sandboxquotas", within)
        yield Right(verb, "rollbox.dev", "egresspresets", within)
        yield Right(verb, "rollbox.dev", "datasets", within)
        yield Right(verb, "rollbox.dev", "apikeys", within)
    for verb in ("list", "watch"):
        yield Right(verb, "", "events", within)
        yield Right(verb, "", "pods")
        yield Right(verb, "coordination.k8s.io", "leases", "kube-node-lease")
    for verb in ("get", "list", "watch"):
        yield Right(verb, "", "nodes")
    if release.devices is not None:
        for verb in ("list", "watch"):
            yield Right(verb, "resource.k8s.io", "deviceclasses")
            yield Right(verb, "resource.k8s.io", "resourceslices")
            yield Right(verb, "resource.k8s.io", "resourceclaims")
    yield Right("get", "", "persistentvolumeclaims", within)
    yield Right("get", "node.k8s.io", "runtimeclasses", name=release.runtime_class)


async def check(client: KubernetesClient, release: Release, account: str) -> CheckResult:
    """Asks for each right; the user of the client needs the right to ask. Cost: about 30 calls, at once.

    Args:
        client: of the API server.
        release: the release.
        account: the ServiceAccount of its control plane.

    Raises:
        Problem: the API server does not answer, or refuses the question.
    """
    rights = [*needed(release)]
    allowed = await asyncio.gather(*(_allowed(client, release.namespace, account, one) for one in rights))
    missing = [str(one) for one, has in zip(rights, allowed, strict=True) if not has]
    detail = f"{account} may not {', '.join(missing)}" if missing else f"{account} has the {len(rights)} that it needs"
    fix = MEND.format(account=account, namespace=release.namespace)
    return finding(f"rights of {release.name}", not missing, detail, fix)


async def _allowed(client: KubernetesClient, namespace: str, account: str, right: Right) -> bool:
    attributes: dict[str, Any] = {"verb": right.verb, "group": right.group, "resource": right.resource}
    attributes |= {"namespace": right.namespace} if right.namespace else {}
    attributes |= {"name": right.name} if right.name else {}
    groups = ["system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated"]
    spec = {
        "user": f"system:serviceaccount:{namespace}:{account}",
        "groups": groups,
        "resourceAttributes": attributes,
    }
    kind = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview"}
    return bool((await client.create(REVIEWS, {**kind, "spec": spec}))["status"].get("allowed"))
