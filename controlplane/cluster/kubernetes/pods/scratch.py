"""Scratch of pods: a claim that many pods write, made with the first pod that has it, and gone with the last.

Each pod that has a scratch is an owner of its claim: Kubernetes' garbage collector removes the claim once none of them
is there any more, whatever becomes of the control plane.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from itertools import repeat
from typing import Any, Final

from controlplane.cluster.kubernetes.api_server.client import STRATEGIC, KubernetesClient
from controlplane.cluster.kubernetes.api_server.refusals import Refused
from controlplane.cluster.kubernetes.marks import LABEL_INSTALLATION
from controlplane.cluster.protocol import Bound, ScratchAt
from controlplane.errors import Problem

# The chart's admission policy lets pods write into claims with such names, and into no others.
PREFIX: Final = "rollbox-scratch-"
VOLUME: Final = "scratch-"
# How often it is looked whether the claim of an earlier group is gone.
LOOK_EVERY_S: Final = 0.5
# A claim that is another one by now is refused as a conflict, again and again.
REMOVED_WITHIN_S: Final = 2.0

Json = dict[str, Any]


def claim_name(installation: str, key: str) -> str:
    """The name of the claim of a scratch; pure."""
    return f"{PREFIX}{installation}-{key}"


def volumes(bound: Sequence[Bound], installation: str) -> list[Json]:
    """The volumes of a pod; pure."""
    return [
        {"name": f"{VOLUME}{number}", "persistentVolumeClaim": {"claimName": claim_name(installation, one.key)}}
        for number, one in _scratch(bound)
    ]


def volume_mounts(bound: Sequence[Bound]) -> list[Json]:
    """Where the target sees them; pure."""
    return [{"name": f"{VOLUME}{number}", "mountPath": one.path} for number, one in _scratch(bound)]


def paths(bound: Sequence[Bound]) -> list[str]:
    """Where they are, for the sidecar, which detaches other folders of the node that can be written; pure."""
    return [one.path for _, one in _scratch(bound)]


def _scratch(bound: Sequence[Bound]) -> list[tuple[int, ScratchAt]]:
    return [(number, one) for number, one in enumerate(bound) if isinstance(one, ScratchAt)]


class Scratches:
    """The claims of scratch.

    Args:
        client: of the API server.
        namespace: the sandboxes'.
        installation: whose claims they are.
        storage_class: of the claims; empty: there is no scratch here.
        there: whether a pod with this name is known to be there.
    """

    def __init__(
        self,
        client: KubernetesClient,
        namespace: str,
        installation: str,
        storage_class: str,
        there: Callable[[str], bool],
    ) -> None:
        self._client = client
        self._path = f"/api/v1/namespaces/{namespace}/persistentvolumeclaims"
        self._pods = f"/api/v1/namespaces/{namespace}/pods"
        self._installation = installation
        self._class = storage_class
        self._there = there

    async def check(self, key: str, size_bytes: int) -> None:
        """See ``Mounts.check_scratch``. Cost: one call to the API server."""
        if not self._class:
            detail = (
                "this cluster has no scratch: pods share a folder by a storage class whose volumes many nodes write "
                "(scratch.storageClass of the chart)"
            )
            raise Problem("unsupported", detail, option="mounts")
        name = self._name(key)
        claim = await self._get(f"{self._path}/{name}")
        if claim is None or not await self._is_used(claim):
            return
        if _is_going(claim):
            detail = f"the claim {name} of a scratch is being removed while sandboxes have it: it is gone with them"
            raise Problem("dataset_unavailable", detail)
        _check_size(claim, size_bytes)

    async def made(self, pod: Mapping[str, Any], bound: Sequence[Bound], within_s: float) -> None:
        """Makes the claims that a pod has, or makes the pod an owner of those that are there.

        Args:
            pod: as the API server has it.
            bound: what is mounted there.
            within_s: for how long it waits until claims of the same names are gone.

        Raises:
            Problem: conflict, one is there with another size; capacity_unavailable, one that is being removed is not
                gone in time; the cluster's.
        """
        about = pod["metadata"]
        owner = {"apiVersion": "v1", "kind": "Pod", "name": about["name"], "uid": about["uid"]}
        for one in {one.key: one for _, one in _scratch(bound)}.values():
            try:
                async with asyncio.timeout(within_s):
                    await self._made_once_gone(one, owner)
            except TimeoutError:
                detail = f"the claim {self._name(one.key)} of an earlier scratch is being removed, and not gone in time"
                raise Problem("capacity_unavailable", detail) from None

    async def _made_once_gone(self, one: ScratchAt, owner: Json) -> None:
        for pause_s in repeat(LOOK_EVERY_S):
            if await self._made(one, owner):
                return
            await asyncio.sleep(pause_s)

    async def _made(self, one: ScratchAt, owner: Json) -> bool:
        """Whether the claim is there and has this owner; False: there is one that goes."""
        name = self._name(one.key)
        try:
            await self._client.create(self._path, self._claim(name, one, owner), answered=False)
        except Refused as refused:
            if refused.refusal.reason != "AlreadyExists":
                raise
        else:
            return True
        claim = await self._get(f"{self._path}/{name}")
        if claim is None or _is_going(claim):
            return False
        if not await self._is_used(claim, but=owner["name"]):
            await self._remove(claim)
            return False
        _check_size(claim, one.size_bytes)
        return await self._joined(name, owner)

    async def _joined(self, name: str, owner: Json) -> bool:
        """Whether a claim that is there has this owner now, and stays."""
        try:
            # Merged by their uids, so that of several pods at once each is one.
            body = {"metadata": {"ownerReferences": [owner]}}
            joined = await self._client.patch(f"{self._path}/{name}", body, STRATEGIC)
        except Refused as refused:
            if refused.refusal.status != HTTPStatus.NOT_FOUND:
                raise
            return False
        return not _is_going(joined)

    def _name(self, key: str) -> str:
        return claim_name(self._installation, key)

    def _claim(self, name: str, one: ScratchAt, owner: Json) -> Json:
        return {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {
                "name": name,
                "labels": {LABEL_INSTALLATION: self._installation, "app.kubernetes.io/managed-by": "rollbox"},
                "ownerReferences": [owner],
            },
            "spec": {
                "accessModes": ["ReadWriteMany"],
                "storageClassName": self._class,
                "resources": {"requests": {"storage": str(one.size_bytes)}},
            },
        }

    async def _is_used(self, claim: Json, but: str = "") -> bool:
        """Whether a pod has it; what only pods had that are gone is not used again, since a scratch begins empty."""
        owners = [str(one["name"]) for one in claim["metadata"].get("ownerReferences") or ()]
        if any(name == but or self._there(name) for name in owners):
            return True
        # One that another replica has just made may not be known here.
        for name in owners:
            if await self._get(f"{self._pods}/{name}") is not None:
                return True
        return False

    async def _get(self, path: str) -> Json | None:
        try:
            return await self._client.get(path)
        except Refused as refused:
            if refused.refusal.status != HTTPStatus.NOT_FOUND:
                raise
            return None

    async def _remove(self, claim: Json) -> None:
        about = claim["metadata"]
        try:
            body = {"preconditions": {"uid": about["uid"]}}
            await self._client.delete(f"{self._path}/{about['name']}", body, within_s=REMOVED_WITHIN_S)
        except Refused as refused:
            if refused.refusal.status not in (HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT):
                raise


def _is_going(claim: Json) -> bool:
    return bool(claim["metadata"].get("deletionTimestamp"))


def _check_size(claim: Json, size_bytes: int) -> None:
    requests = (claim["spec"].get("resources") or {}).get("requests") or {}
    if str(requests.get("storage")) != str(size_bytes):
        detail = "the scratch is there with another size: give it that, or another name"
        raise Problem("conflict", detail, option="mounts")
