"""The periodic look at the pods: releases those that were deleted and wait for a control plane, and reports the hung.

Records and cluster are compared by the control plane's replicas (``lifecycle/replicas``). This must not wait for them:
a pod that was deleted, by a drain for example, keeps its finalizer until its end is on record.
"""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

import structlog

from controlplane.clock import Clock
from controlplane.cluster.kubernetes.api_server.client import STRATEGIC, Json, KubernetesClient
from controlplane.cluster.kubernetes.api_server.refusals import Refused
from controlplane.cluster.kubernetes.marks import FINALIZER
from controlplane.cluster.kubernetes.pods.deaths import death
from controlplane.cluster.kubernetes.pods.podspec import selector
from controlplane.cluster.kubernetes.pods.removal import WITHOUT_FINALIZER
from controlplane.cluster.kubernetes.pods.trimmed import trimmed
from controlplane.cluster.kubernetes.pods.unstopped import since_ms, unstopped
from controlplane.errors import Problem
from controlplane.operator.escalation import Escalation
from controlplane.operator.notices import Notices
from controlplane.operator.records import Records
from controlplane.store import StoreLostError, UnreadableRecordError

EVERY_S: Final = 30.0
# A finalizer is stuck after this time. The control plane removes it within a second, unless it has missed the end or
# cannot reach the API server.
STUCK_MS: Final = 60_000
# Between two removals: deleting hundreds of pods at once overloads a node for minutes.
PAUSE_S: Final = 0.2
WITHIN_S: Final = 10.0

Pod = Mapping[str, Any]


def stuck(pods: Sequence[Pod], now_ms: int) -> Sequence[Pod]:
    """The pods that were deleted a minute ago and that the control plane still holds. Pure."""
    held = [pod for pod in pods if FINALIZER in (pod["metadata"].get("finalizers") or ())]
    return [pod for pod in held if since_ms(pod, "deletionTimestamp", now_ms) > STUCK_MS]


class Sweep:
    """Looks and repairs. All its steps are idempotent, and safe while the control plane does the same."""

    def __init__(
        self,
        client: KubernetesClient,
        records: Records,
        notices: Notices,
        clock: Clock,
        escalation: Escalation,
        *,
        namespace: str,
        installation: str,
    ) -> None:
        self._client = client
        self._records = records
        self._notices = notices
        self._clock = clock
        self._escalation = escalation
        self._path = f"/api/v1/namespaces/{namespace}/pods"
        self._mine = {"labelSelector": selector(installation)}
        self._log = structlog.get_logger("sweep")

    async def run(self) -> None:
        """Sweeps every ``EVERY_S`` until it is cancelled."""
        while True:
            try:
                await self.once()
            except StoreLostError:
                self._log.warning("store is being rebuilt, sweep skipped")
            except Problem as problem:
                self._log.warning("sweep failed, retrying later", code=problem.code, detail=problem.detail)
            await asyncio.sleep(EVERY_S)

    async def once(self) -> None:
        """Runs one sweep.

        Raises:
            Problem: the store or the API server does not answer.
            StoreLostError: the store has lost its content.
        """
        pods = (await self._client.list(self._path, self._mine, _kept)).items
        now_ms = self._clock.now_ms()
        for pod in stuck(pods, now_ms):
            # A record that this version cannot read is left to a replica of the other version.
            with suppress(UnreadableRecordError):
                await self._release(pod)
        await self._escalation.report(unstopped(pods, now_ms), {str(pod["metadata"]["name"]): pod for pod in pods})

    async def _release(self, pod: Pod) -> None:
        """Takes away a pod whose end is on record; else records the end, and leaves the pod to the control plane."""
        name, uid = str(pod["metadata"]["name"]), str(pod["metadata"].get("uid") or "")
        if not await self._records.ended(name):
            if (one := death(pod)) is not None and await self._records.record_death(one):
                self._log.warning("recorded a missed death", sandbox_id=name, cause=one.cause, detail=one.detail)
            return
        why = f"its end waited for the control plane for more than {STUCK_MS // 1000} s"
        self._log.warning("removing pod", sandbox_id=name, why=why)
        # The Event comes first, while the pod exists.
        await self._notices.write(pod, "Removed", f"rollbox removes this pod: {why}")
        path, only = f"{self._path}/{name}", {"preconditions": {"uid": uid}} if uid else {}
        try:
            await self._client.delete(path, {"gracePeriodSeconds": 1, **only}, within_s=WITHIN_S)
            await self._client.patch(path, WITHOUT_FINALIZER, STRATEGIC, within_s=WITHIN_S)
        except Refused as refused:
            if refused.refusal.status not in (404, 409):
                raise
        await asyncio.sleep(PAUSE_S)


def _kept(pod: Json) -> Json:
    """What a sweep needs of a pod: whole, four thousand of them are more than the operator's memory limit."""
    return trimmed(pod, "uid", "finalizers")
