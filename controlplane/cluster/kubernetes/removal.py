"""Taking a pod off the cluster, and knowing that it is gone."""

import asyncio
from http import HTTPStatus
from typing import Final

from controlplane.cluster.kubernetes.client import STRATEGIC, Json, KubernetesClient
from controlplane.cluster.kubernetes.pods import Pods
from controlplane.cluster.kubernetes.podspec import FINALIZER
from controlplane.cluster.kubernetes.refusals import Refused
from controlplane.errors import Problem

WITHIN_S: Final = 55.0
# The watch tells; this is for when it has missed something. Twice as long after each look: thousands may wait.
LOOK_AGAIN_S: Final = 5.0
# Removals that speak to the API server at one time, two calls each: half of the client's share, so that thousands of
# ends leave room for creates. Waiting for a kubelet takes up no place.
ASKING_AT_ONCE: Final = 8
# The kubelet kills what has not ended by then.
GRACE_S: Final = 1

# One list item, whoever else has put theirs there; taking it away twice is fine.
WITHOUT_FINALIZER: Final[Json] = {"metadata": {"$deleteFromPrimitiveList/finalizers": [FINALIZER]}}


class Removal:
    """Removes pods whose end is on record: that is what their finalizer has waited for."""

    def __init__(self, client: KubernetesClient, pods: Pods, path: str) -> None:
        self._client = client
        self._pods = pods
        self._path = path
        self._turns = asyncio.Semaphore(ASKING_AT_ONCE)

    async def remove(self, sandbox_id: str) -> None:
        """Returns when the pod object is gone; unknown is success.

        Raises:
            Problem: upstream_timeout, when the kubelet has not confirmed in time; calling again is safe.
        """
        gone = self._pods.stopping(sandbox_id)
        try:
            if await self._ask(sandbox_id, GRACE_S):
                async with asyncio.timeout(WITHIN_S):
                    await self._gone(sandbox_id, gone)
        except TimeoutError as error:
            detail = f"the pod {sandbox_id} is not gone after {WITHIN_S:.0f} s; its kubelet has not confirmed the end"
            raise Problem("upstream_timeout", detail, sandbox_id=sandbox_id) from error
        finally:
            self._pods.stopped(sandbox_id)

    async def _ask(self, sandbox_id: str, grace_s: int) -> bool:
        """Asks for the end; False when there is nothing to end."""
        path = f"{self._path}/{sandbox_id}"
        # Side by side: either may come first.
        async with self._turns:
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

    async def _gone(self, sandbox_id: str, gone: "asyncio.Future[None]") -> None:
        pause_s = LOOK_AGAIN_S
        while not gone.done():
            if self._pods.on_lost_node(sandbox_id):
                await self._ask(sandbox_id, 0)
            await asyncio.wait([gone], timeout=pause_s)
            if gone.done() or not await self._exists(sandbox_id):
                return
            pause_s *= 2

    async def _exists(self, sandbox_id: str) -> bool:
        try:
            async with self._turns:
                await self._client.get(f"{self._path}/{sandbox_id}")
        except Refused as refused:
            if not _missing(refused):
                raise
            return False
        return True


def _missing(error: BaseException) -> bool:
    return isinstance(error, Refused) and error.refusal.status == HTTPStatus.NOT_FOUND
