"""Whether the control plane of a release can read the image pull secrets of sandboxes, those of one owner included."""

import asyncio
from http import HTTPStatus

from controlplane.cluster.check_result import CheckResult, finding
from controlplane.cluster.kubernetes.api_server.client import KubernetesClient
from controlplane.cluster.kubernetes.api_server.refusals import Refused
from controlplane.cluster.kubernetes.doctor.releases import Release
from controlplane.cluster.kubernetes.node_agents.pull_secrets import text_of

MEND = (
    "Make what is missing: kubectl create secret docker-registry NAME -n {namespace} --docker-server=..., or take it "
    "out of sandboxes.imagePullSecrets or sandboxes.ownerPullSecrets. Until then the images of its owner are refused, "
    "and registries are asked at each create whether others may have theirs."
)


async def check(client: KubernetesClient, release: Release) -> list[CheckResult]:
    """Reads each Secret that the release names; nothing where it names none. Cost: a call each, at once.

    Args:
        client: of the API server; its user needs the right to read Secrets there.
        release: the release.

    Raises:
        Problem: the API server does not answer, or refuses the question.
    """
    owners = {name: owner for owner, names in release.owner_pull_secrets.items() for name in names}
    names = [*dict.fromkeys((*release.pull_secrets, *owners))]
    told = await asyncio.gather(*(_trouble(client, release.sandboxes, name) for name in names))
    bad = [
        f"{name}{f' (owner {owners[name]})' if name in owners else ''}: {why}"
        for name, why in zip(names, told, strict=True)
        if why
    ]
    detail = f"in {release.sandboxes}: {'; '.join(bad)}" if bad else f"the {len(names)} that it names can be read"
    fix = MEND.format(namespace=release.sandboxes)
    return [finding(f"image pull secrets of {release.name}", not bad, detail, fix)] if names else []


async def _trouble(client: KubernetesClient, namespace: str, name: str) -> str:
    try:
        text_of(await client.get(f"/api/v1/namespaces/{namespace}/secrets/{name}"))
    except Refused as refused:
        if refused.refusal.status != HTTPStatus.NOT_FOUND:
            raise
        return "there is none of this name"
    except ValueError as error:
        return str(error)
    return ""
