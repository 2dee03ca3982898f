"""Deletes sandboxes' pods, and waits until they are gone."""

import asyncio
from http import HTTPStatus
from typing import Final

import structlog

from controlplane.cluster.kubernetes.api_server.client import STRATEGIC, Json, KubernetesClient
from controlplane.cluster.kubernetes.api_server.refusals import Refused
from controlplane.cluster.kubernetes.marks import ANNOTATION_UNDONE, FINALIZER
from controlplane.cluster.kubernetes.pods.never_ran import never_ran
from controlplane.cluster.kubernetes.pods.pods import Pods
from controlplane.errors import Problem

WITHIN_S: Final = 55.0
# The watch reports that a pod is gone; in case it misses that, the API server is polled after this time. The pause
# doubles after each poll, since thousands of removals may wait.
LOOK_AGAIN_S: Final = 5.0
# Removals that call the API server at the same time, with two calls each: half of the client's concurrency, so that
# thousands of removals leave room for creates. A removal that waits for a kubelet does not count.
ASKING_AT_ONCE: Final = 8
# The pod's grace period: after it the kubelet kills the remaining processes.
GRACE_S: Final = 1

# A strategic merge patch that removes our finalizer and leaves others in place; idempotent.
WITHOUT_FINALIZER: Final[Json] = {"metadata": {"$deleteFromPrimitiveList/finalizers": [FINALIZER]}}
UNDONE: Final[Json] = {"metadata": {"annotations": {ANNOTATION_UNDONE: "true"}}}


class Removal:
    """Deletes pods whose end is on record, and removes the finalizer that has kept them until then.

    Args:
        client: of the API server.
        pods: the mirror of the pods.
        path: of the sandboxes' pods.
        events: of the pods' events.
    """

    def __init__(self, client: KubernetesClient, pods: Pods, path: str, events: str) -> None:
        self._client = client
        self._pods = pods
        self._path = path
        self._events = events
        self._calls = asyncio.Semaphore(ASKING_AT_ONCE)
        self._log = structlog.get_logger("removal")

    async def remove(self, sandbox_id: str) -> None:
        """Deletes a pod and returns when the object is gone; success if it is unknown.

        Raises:
            Problem: upstream_timeout, if the kubelet has not confirmed the end in time; a retry is safe.
        """
        await self._removed(sandbox_id)

    async def undo(self, sandbox_id: str) -> None:
        """Deletes a pod of which the name is used again; returns when the object is gone.

        The kubelet of a pod that waits for something which hangs (a snapshotter) confirms nothing meanwhile. So the
        object is deleted without it after ``LOOK_AGAIN_S``, if no container of the pod has ever run; what the kubelet
        has begun it takes back by itself.

        Raises:
            Problem: upstream_timeout; a retry is safe.
        """
        try:
            # First of all: a replica that sees the end of the pod has seen this.
            await self._client.patch(f"{self._path}/{sandbox_id}", UNDONE, STRATEGIC, within_s=WITHIN_S)
        except Refused as refused:
            if _missing(refused):
                return
            raise
        await self._removed(sandbox_id, undone=True)

    async def _removed(self, sandbox_id: str, *, undone: bool = False) -> None:
        try:
            with self._pods.stopping(sandbox_id) as gone:
                if await self._ask(sandbox_id, GRACE_S):
                    async with asyncio.timeout(WITHIN_S):
                        await self._gone(sandbox_id, gone, undone=undone)
        except TimeoutError as error:
            detail = f"the pod {sandbox_id} is not gone after {WITHIN_S:.0f} s; its kubelet has not confirmed the end"
            raise Problem("upstream_timeout", detail, sandbox_id=sandbox_id) from error

    async def _ask(self, sandbox_id: str, grace_s: int) -> bool:
        """Requests the deletion; False if there is no such pod."""
        path = f"{self._path}/{sandbox_id}"
        # Both calls at once, since their order does not matter.
        async with self._calls:
            answers = await asyncio.gather(
                self._client.delete(path, {"gracePeriodSeconds": grace_s}, within_s=WITHIN_S),
                self._client.patch(path, WITHOUT_FINALIZER, STRATEGIC, within_s=WITHIN_S),
                return_exceptions=True,
            )
        failures = [one for one in answers if isinstance(one, BaseException)]
        for failure in failures:
            if not _missing(failure):
                raise failure
        return not failures or sandbox_id in self._pods

    async def _gone(self, sandbox_id: str, gone: "asyncio.Future[None]", *, undone: bool) -> None:
        pause_s = LOOK_AGAIN_S
        while not gone.done():
            if self._pods.on_lost_node(sandbox_id):
                await self._ask(sandbox_id, 0)
            await asyncio.wait([gone], timeout=pause_s)
            if gone.done() or (pod := await self._read(sandbox_id)) is None:
                return
            if undone:
                await self._force(pod)
            pause_s *= 2

    async def _read(self, sandbox_id: str) -> Json | None:
        """The pod; None: it is gone."""
        try:
            async with self._calls:
                return await self._client.get(f"{self._path}/{sandbox_id}")
        except Refused as refused:
            if not _missing(refused):
                raise
            return None

    async def _force(self, pod: Json) -> None:
        """Deletes the object of a pod that is being deleted, if none of its containers has run."""
        about = pod["metadata"]
        uid = str(about["uid"])
        async with self._calls:
            events = await self._client.list(self._events, {"fieldSelector": f"involvedObject.uid={uid}"})
        if not about.get("deletionTimestamp") or not never_ran(pod, events.items):
            return
        options = {"gracePeriodSeconds": 0, "preconditions": {"uid": uid}}
        try:
            async with self._calls:
                await self._client.delete(f"{self._path}/{about['name']}", options)
        except Refused as refused:
            # By now it is gone, or another pod has its name.
            if refused.refusal.status not in (HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT):
                raise
            return
        self._log.warning(
            "pod of an undone start deleted without its kubelet, none of its containers has run",
            sandbox_id=about["name"],
        )


def _missing(error: BaseException) -> bool:
    return isinstance(error, Refused) and error.refusal.status == HTTPStatus.NOT_FOUND
