"""What starts cost the API server: a pod each, and the names of all of them in a write for each headless Service."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from controlplane.cluster.kubernetes import KubernetesCluster
from controlplane.cluster.kubernetes.names import writer
from controlplane.cluster.kubernetes.names.slices import LABEL_MANAGED, LABEL_SERVICE
from controlplane.errors import Problem
from tests.contract.kubernetes.conftest import Opener
from tests.contract.kubernetes.test_cluster import BOOT, SPEC
from tests.support.eventually import eventually
from tests.support.fake_kubernetes import ENDPOINTS, PODS, SERVICES, SLICES, FakeKubernetes, Fault

SHARDS = 16
STARTS = 200


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "HERD_EVERY_S", 0.0)


@pytest.fixture
async def named(api: FakeKubernetes, opener: Opener) -> AsyncIterator[KubernetesCluster]:
    for shard in range(SHARDS):
        await api.put(SERVICES, {"metadata": {"name": f"shard-{shard}", "uid": f"uid-shard-{shard}"}})
    async with opener() as cluster:
        yield cluster


async def started(api: FakeKubernetes, cluster: KubernetesCluster, numbers: range) -> None:
    for number in numbers:
        await cluster.start(f"sb-{number}", SPEC, BOOT)
        await api.patch_status(f"sb-{number}", podIP=f"10.0.{number // 250}.{number % 250}")
        cluster.pushed(f"sb-{number}", f"http://10.0.{number // 250}.{number % 250}:7070")
    await eventually(lambda: f"sb-{numbers[-1]}" in cluster.names._addresses)


def changes(api: FakeKubernetes) -> list[str]:
    return [call for call in api.calls if not call.startswith("GET")]


def served(api: FakeKubernetes) -> dict[str, str]:
    found: dict[str, str] = {}
    for one in api.objects[SLICES].values():
        assert len(one["endpoints"]) <= 100
        for endpoint in one["endpoints"]:
            assert endpoint["hostname"] not in found
            found[endpoint["hostname"]] = endpoint["addresses"][0]
    return found


async def test_so_many_starts_are_so_many_pods_and_one_write_for_each_service(
    api: FakeKubernetes, named: KubernetesCluster
) -> None:
    await named.names.turn()
    api.calls.clear()
    await started(api, named, range(STARTS))
    await named.names.turn()
    assert changes(api).count(f"POST {PODS}") == STARTS
    assert len(changes(api)) <= STARTS + SHARDS, "nothing of a start but its pod is written for itself"
    assert served(api) == {f"sb-{n}": f"10.0.0.{n}" for n in range(STARTS)}
    api.calls.clear()
    await named.names.turn()
    assert api.calls == []
    await started(api, named, range(STARTS, 2 * STARTS))
    api.calls.clear()
    await named.names.turn()
    assert len(changes(api)) <= SHARDS
    assert len(served(api)) == 2 * STARTS
    (one,) = {one["addressType"] for one in api.objects[SLICES].values()}
    assert one == "IPv4"
    owners = {one["metadata"]["ownerReferences"][0]["uid"] for one in api.objects[SLICES].values()}
    assert owners == {f"uid-shard-{shard}" for shard in range(SHARDS)}


async def test_a_few_are_named_at_once_and_a_herd_together(
    api: FakeKubernetes, named: KubernetesCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "HERD_EVERY_S", 3600.0)
    await named.names.turn()
    await started(api, named, range(3))
    await named.names.turn()
    assert len(served(api)) == 3
    for number in range(3, 8):
        await started(api, named, range(10 * number, 10 * number + 10))
        if number > 3:
            api.calls.clear()
            await named.names.turn()
            assert changes(api) == []
    monkeypatch.setattr(writer, "HERD_EVERY_S", 0.0)
    await named.names.turn()
    assert len(served(api)) == 53


async def test_names_of_what_has_ended_go(api: FakeKubernetes, named: KubernetesCluster) -> None:
    await started(api, named, range(5))
    await named.names.turn()
    await named.stop("sb-0")
    await api.patch_status("sb-1", phase="Failed")
    await eventually(lambda: len(named.names._addresses) == 3)
    await named.names.turn()
    assert sorted(served(api)) == ["sb-2", "sb-3", "sb-4"]


async def test_another_replica_goes_on_where_this_one_stopped(
    api: FakeKubernetes, named: KubernetesCluster, opener: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    await started(api, named, range(5))
    await named.names.turn()
    async with opener() as other:
        await named.stop("sb-0")
        await started(api, other, range(5, 7))
        await eventually(lambda: "sb-0" not in other.names._addresses)
        await other.names.turn()
        assert sorted(served(api)) == [f"sb-{n}" for n in range(1, 7)]
        # The first one takes itself for the one whose turn it is: it is refused, and looks again.
        await started(api, named, range(7, 60))
        with pytest.raises(Problem):
            await named.names.turn()
        monkeypatch.setattr(writer, "LOOK_FOR_SERVICES_S", 0.0)
        await named.names.turn()
        assert served(api) == named.names._addresses


async def test_a_server_that_fails_loses_no_name(api: FakeKubernetes, named: KubernetesCluster) -> None:
    await named.names.turn()
    await started(api, named, range(40))
    api.faults = [Fault("POST", "endpointslices", 403, "Forbidden")]
    with pytest.raises(Problem):
        await named.names.turn()
    await named.names.turn()
    assert len(served(api)) == 40


async def test_what_kubernetes_has_left_of_services_with_a_selector_goes(
    api: FakeKubernetes, named: KubernetesCluster
) -> None:
    await api.put(ENDPOINTS, {"metadata": {"name": "shard-0"}})
    for name, managed in (("old", "endpointslice-controller.k8s.io"), ("doctors", "doctor.rollbox.dev")):
        labels = {LABEL_SERVICE: "shard-0", LABEL_MANAGED: managed}
        slice_: dict[str, Any] = {"metadata": {"name": name, "labels": labels}, "addressType": "IPv4", "endpoints": []}
        await api.put(SLICES, slice_)
    await named.names.turn()
    assert api.objects[ENDPOINTS] == {}
    assert list(api.objects[SLICES]) == ["doctors"]


async def test_without_services_nothing_is_written_and_hardly_asked(
    api: FakeKubernetes, cluster: KubernetesCluster
) -> None:
    await started(api, cluster, range(3))
    api.calls.clear()
    for _ in range(10):
        await cluster.names.turn()
    assert api.calls == [f"GET {SERVICES}"]
