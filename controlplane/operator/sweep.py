"""The periodic comparison of records and pods.

A record is written before its pod is created. A sweep lists the live records, then the pods, and then reads the record
of each pod that is not among the live ones. So a pod without a record never belongs to a sandbox that has just begun to
start.
"""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Final

import structlog

from controlplane.clock import Clock
from controlplane.cluster.kubernetes.api_server.client import STRATEGIC, Json, KubernetesClient
from controlplane.cluster.kubernetes.api_server.refusals import Refused
from controlplane.cluster.kubernetes.pods.podspec import selector
from controlplane.cluster.kubernetes.pods.removal import WITHOUT_FINALIZER
from controlplane.cluster.kubernetes.pods.trimmed import trimmed
from controlplane.errors import Problem
from controlplane.model import Sandbox
from controlplane.operator.escalation import Escalation
from controlplane.operator.notices import Notices
from controlplane.operator.plan import Pod, Remove, plan
from controlplane.operator.records import Records
from controlplane.store import StoreLostError, UnreadableRecordError

EVERY_S: Final = 30.0
# Between two removals: deleting hundreds of pods at once overloads a node for minutes.
PAUSE_S: Final = 0.2
WITHIN_S: Final = 10.0


class Sweep:
    """Compares and repairs. All its steps are idempotent, and safe while the control plane does the same."""

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
        live = await self._records.live()
        listed = (await self._client.list(self._path, self._mine, _kept)).items
        records, pods = await self._with_ended(live, listed)
        todo = plan(records, pods, self._clock.now_ms())
        for death in todo.deaths:
            if await self._records.record_death(death):
                self._log.warning(
                    "recorded a missed death", sandbox_id=death.sandbox_id, cause=death.cause, detail=death.detail
                )
        by_name = {str(pod["metadata"]["name"]): pod for pod in pods}
        for one in todo.removals:
            await self._remove(one, by_name[one.name])
            await asyncio.sleep(PAUSE_S)
        await self._escalation.report(todo.unstopped, by_name)

    async def _with_ended(
        self, live: Mapping[str, Sandbox], pods: Sequence[Pod]
    ) -> tuple[Mapping[str, Sandbox], Sequence[Pod]]:
        """Adds the records of pods whose record is not live, since it may have ended or be missing.

        Pods whose record this version cannot read are left out; a replica of the other version handles them.
        """
        records, judged = dict(live), []
        for pod in pods:
            name = str(pod["metadata"]["name"])
            with suppress(UnreadableRecordError):
                if name not in records and (record := await self._records.get(name)) is not None:
                    records[name] = record
                judged.append(pod)
        return records, judged

    async def _remove(self, one: Remove, pod: Pod) -> None:
        self._log.warning("removing pod", sandbox_id=one.name, why=one.why)
        # The Event comes first, while the pod exists.
        await self._notices.write(pod, "Removed", f"rollbox removes this pod: {one.why}")
        path = f"{self._path}/{one.name}"
        only = {"preconditions": {"uid": one.uid}} if one.uid else {}
        try:
            await self._client.delete(path, {"gracePeriodSeconds": 1, **only}, within_s=WITHIN_S)
            await self._client.patch(path, WITHOUT_FINALIZER, STRATEGIC, within_s=WITHIN_S)
        except Refused as refused:
            if refused.refusal.status not in (404, 409):
                raise


def _kept(pod: Json) -> Json:
    """What a sweep needs of a pod: whole, four thousand of them are more than the operator's memory limit."""
    return trimmed(pod, "uid", "creationTimestamp", "finalizers")
