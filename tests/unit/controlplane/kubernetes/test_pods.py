"""Ends as a kubelet reports them: the containers first, the reason a moment later."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from controlplane.cluster.kubernetes.marks import ANNOTATION_DATASETS, ANNOTATION_START_BY
from controlplane.cluster.kubernetes.pods.deaths import unexplained
from controlplane.cluster.kubernetes.pods.pods import REASON_WITHIN_S, SURE_REASON_WITHIN_S, Pods
from controlplane.cluster.protocol import Death
from tests.support.virtual_time import EPOCH_MS, VirtualClock

IN_PEACE = {"exitCode": 0, "reason": "Completed"}
KILLED = {"exitCode": 137, "reason": "Error"}
EVICTED = {
    "phase": "Failed",
    "reason": "Evicted",
    "message": "Pod ephemeral local storage usage exceeds the total limit",
}


def pod(*ends: dict[str, Any], **status: Any) -> dict[str, Any]:
    containers = [
        {"name": name, "state": {"terminated": end}} for name, end in zip(("sidecar", "target"), ends, strict=False)
    ]
    return {
        "metadata": {"name": "sb-1"},
        "spec": {"nodeName": "n1"},
        "status": {"phase": "Running", "containerStatuses": containers, **status},
    }


@asynccontextmanager
async def watched() -> AsyncIterator[tuple[Pods, list[tuple[float, Death]]]]:
    """Pods, and what is told of them, with the time that it took."""
    pods, told, loop = Pods(VirtualClock(), lambda _: None), [], asyncio.get_running_loop()
    began_s = loop.time()

    async def listen() -> None:
        async for one in pods.deaths():
            told.append((loop.time() - began_s, one))

    listening = asyncio.create_task(listen())
    await asyncio.sleep(0)
    try:
        yield pods, told
    finally:
        pods.close()
        listening.cancel()
        await asyncio.wait([listening])


@pytest.mark.parametrize("first", [(IN_PEACE,), (IN_PEACE, KILLED), (KILLED, KILLED)])
async def test_an_eviction_is_told_by_its_reason_and_not_by_the_ends_that_come_before(first: Any) -> None:
    async with watched() as (pods, told):
        pods.put(pod(*first))
        assert pods.is_unconfirmed("sb-1")
        await asyncio.sleep(1)
        pods.put(pod(IN_PEACE, KILLED, **EVICTED))
        await asyncio.sleep(10)
        ((after_s, death),) = told
        assert death.cause == "disk_full"
        assert after_s == pytest.approx(1, abs=0.1)
        assert not pods.is_unconfirmed("sb-1")


@pytest.mark.parametrize(("end", "within_s"), [(KILLED, REASON_WITHIN_S), (IN_PEACE, SURE_REASON_WITHIN_S)])
async def test_an_end_that_nobody_explains_is_told_a_little_later_however_often_it_is_repeated(
    end: Any, within_s: float
) -> None:
    async with watched() as (pods, told):
        for _ in range(4):
            pods.put(pod(end))
            await asyncio.sleep(0.5)
        await asyncio.sleep(15)
        ((after_s, death),) = told
        assert death.cause == "sandbox_lost"
        assert after_s == pytest.approx(within_s, abs=0.1)


async def test_an_eviction_is_told_by_its_event_and_once() -> None:
    async with watched() as (pods, told):
        pods.evicted("sb-1", "The node was low on resource: memory.")  # of one that is not here (any more)
        pods.put(pod())
        pods.evicted("sb-1", "Pod ephemeral local storage usage exceeds the total limit of containers 64Mi. ")
        pods.put(pod(IN_PEACE, KILLED, **EVICTED))
        await asyncio.sleep(15)
        ((_, death),) = told
        assert death.cause == "disk_full"


async def test_an_end_of_our_own_meanwhile_is_nobodys_news() -> None:
    async with watched() as (pods, told):
        pods.put(pod(IN_PEACE))
        with pods.stopping("sb-1"):
            await asyncio.sleep(10)
        assert told == []


async def test_a_stop_that_is_given_up_takes_the_end_from_no_other_that_waits_for_it() -> None:
    async with watched() as (pods, told):
        pods.put(pod())
        with pods.stopping("sb-1") as gone:
            with pods.stopping("sb-1") as same:
                assert same is gone
            assert not gone.done()
            pods.remove(pod())
            assert gone.done()
        with pods.stopping("sb-1") as later:
            assert not later.done()
        await asyncio.sleep(1)
        assert told == []


@pytest.mark.parametrize(
    "seen",
    [
        pod(),
        pod({"exitCode": 64, "reason": "Error"}),
        pod({"exitCode": 137, "reason": "OOMKilled"}),
        pod({"exitCode": 128, "reason": "StartError"}),
        pod(IN_PEACE, {"exitCode": 3, "reason": "Error"}),
        pod(IN_PEACE, phase="Failed", reason="NodeShutdown"),
        pod(IN_PEACE, KILLED, **EVICTED),
    ],
)
async def test_what_says_enough_waits_for_nothing(seen: dict[str, Any]) -> None:
    assert not unexplained(seen)


@pytest.mark.parametrize("first", ["push", "pod"])
async def test_a_push_that_names_another_address_is_found_out_whichever_is_heard_of_first(first: str) -> None:
    forged: list[None] = []
    pods = Pods(VirtualClock(), lambda _: None, lambda: forged.append(None))
    for name, pushed in (("sb-1", "10.0.0.9"), ("sb-2", "10.0.0.1")):
        told = {**pod(podIP="10.0.0.1"), "metadata": {"name": name}}
        if first == "pod":
            pods.put(told)
        pods.pushed(name, f"http://{pushed}:7070")
        pods.put(told)
    dead = [*pods._dead.values()]
    assert [(one.sandbox_id, one.cause) for one in dead] == [("sb-1", "sandbox_lost")]
    assert "10.0.0.9" in dead[0].detail
    assert len(forged) == 1


WITH_DATA = {
    "name": "sb-1",
    "annotations": {
        ANNOTATION_START_BY: f"{EPOCH_MS + 60_000}",
        ANNOTATION_DATASETS: "dataset-0=papers,dataset-2=models",
    },
}
NO_FOLDER = 'MountVolume.SetUp failed for volume "dataset-2" : hostPath type check failed: /srv/m is not a directory'
NO_CLAIM = 'MountVolume.SetUp failed for volume "pvc-7f" : mount failed: exit status 32'


def waiting(**changes: Any) -> dict[str, Any]:
    return {**pod(phase="Pending"), "metadata": WITH_DATA, **changes}


async def test_a_folder_that_a_node_lacks_is_told_at_once_with_the_data_set() -> None:
    async with watched() as (pods, told):
        pods.put(waiting())
        pods.not_mounted("sb-1", NO_FOLDER)
        await asyncio.sleep(0)
        ((_, one),) = told
        assert (one.cause, one.detail.split(":")[0]) == (
            "dataset_unavailable",
            "the data set models cannot be mounted on node n1",
        )
        assert "/srv/m is not a directory" in one.detail


async def test_a_claim_that_a_node_cannot_mount_is_told_at_the_deadline_of_the_start() -> None:
    async with watched() as (pods, told):
        # Whichever comes first, the pod or what its kubelet says.
        pods.not_mounted("sb-1", NO_CLAIM)
        pods.put(waiting())
        await asyncio.sleep(50)
        assert told == []
        await asyncio.sleep(10)
        ((after_s, one),) = told
        assert (one.cause, 50 < after_s < 60) == ("dataset_unavailable", True)
        which = "the data set papers or the data set models"
        assert one.detail.startswith(f"{which} cannot be mounted on node n1: MountVolume")


async def test_a_scratch_that_a_node_cannot_mount_is_told_by_its_place() -> None:
    async with watched() as (pods, told):
        shared = {"name": "target", "volumeMounts": [{"name": "scratch-1", "mountPath": "/cache"}]}
        pods.put(waiting(spec={"nodeName": "n1", "containers": [shared]}))
        pods.not_mounted("sb-1", "Unable to attach or mount volumes: unmounted volumes=[scratch-1]: timed out")
        await asyncio.sleep(60)
        ((_, one),) = told
        assert (one.cause, one.detail.split(":")[0]) == (
            "dataset_unavailable",
            "the scratch at /cache cannot be mounted on node n1",
        )


@pytest.mark.parametrize(
    "metadata", [WITH_DATA, {**WITH_DATA, "annotations": {ANNOTATION_START_BY: f"{EPOCH_MS + 60_000}"}}]
)
async def test_what_is_mounted_in_the_end_or_is_no_data_set_ends_nothing(metadata: Any) -> None:
    async with watched() as (pods, told):
        pods.put(waiting(metadata=metadata))
        pods.not_mounted("sb-1", NO_CLAIM)
        if metadata is WITH_DATA:
            pods.put({**pod(), "metadata": metadata})
        await asyncio.sleep(100)
        assert told == []
