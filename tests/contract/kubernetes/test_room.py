"""What is free on the nodes follows what the API server says of all pods and nodes."""

from typing import Any

from controlplane.capacity import Room
from controlplane.cluster import Boot
from controlplane.cluster.kubernetes import KubernetesCluster
from controlplane.cluster.kubernetes.marks import LABEL_INSTALLATION, LABEL_SANDBOX
from controlplane.model import Range, SandboxSpec
from tests.contract.kubernetes.conftest import Opener
from tests.support.fake_kubernetes import EVERYWHERE, NAMESPACE, NODES, PODS, FakeKubernetes, Fault, node
from tests.support.waiting import until

LABELS = {LABEL_INSTALLATION: "r", LABEL_SANDBOX: "true"}
SPEC = SandboxSpec(image="a", cpu_millicores=Range(request=495, limit=1000))  # with its sidecar half a core


def other(name: str, cpu: str, **status: Any) -> dict[str, Any]:
    containers = [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]
    about = {"name": name, "namespace": "default"}
    return {"metadata": about, "spec": {"nodeName": "n1", "containers": containers}, "status": status}


def places(cluster: KubernetesCluster) -> int:
    return room(cluster).fit(cluster.request(SPEC), {})


def room(cluster: KubernetesCluster) -> Room:
    assert cluster.room is not None
    return cluster.room


async def test_pods_of_all_namespaces_count_as_long_as_they_are_there(api: FakeKubernetes, opener: Opener) -> None:
    await api.put(EVERYWHERE, other("first", "900m"))
    async with opener() as cluster:
        assert (room(cluster).known, places(cluster)) == (True, 2)
        await api.put(EVERYWHERE, other("second", "600m"))
        await until(lambda: _same(places(cluster), 1))
        # It is asked to end: its node has it still.
        await api.put(EVERYWHERE, {**other("second", "600m"), "status": {"phase": "Running"}})
        await api.put(EVERYWHERE, other("first", "900m", phase="Succeeded"))
        await until(lambda: _same(places(cluster), 2))
        await api.remove(EVERYWHERE, "second")
        await until(lambda: _same(places(cluster), 4))


async def test_what_was_missed_is_listed_again(api: FakeKubernetes, opener: Opener) -> None:
    await api.put(EVERYWHERE, other("first", "900m"))
    async with opener() as cluster:
        api.faults.append(Fault("GET", "/api/v1/pods?watch", times=1, status=410, reason="Expired"))
        await api.close_streams()
        await api.remove(EVERYWHERE, "first")
        await api.put(EVERYWHERE, other("second", "1400m"))
        api.forget()
        await until(lambda: _same(places(cluster), 1))
        assert [one.pods for one in room(cluster).free()] == [1]


async def test_each_of_the_two_watches_of_pods_is_listed_again_by_itself(api: FakeKubernetes, opener: Opener) -> None:
    mine = {"name": "sb-1", "namespace": NAMESPACE, "labels": LABELS}
    await api.put(EVERYWHERE, other("first", "500m"))
    async with opener() as cluster:
        await api.put(PODS, {**other("sb-1", "500m"), "metadata": mine})
        await until(lambda: _same(places(cluster), 2))
        for path in ("/api/v1/pods?watch", f"{PODS}?watch"):
            await _listed_again(api, path)
            assert places(cluster) == 2
        await api.remove(EVERYWHERE, "first")
        await until(lambda: _same(places(cluster), 3))
        await api.remove(PODS, "sb-1")
        await until(lambda: _same(places(cluster), 4))


async def test_nodes_come_and_go(api: FakeKubernetes, opener: Opener) -> None:
    async with opener() as cluster:
        await api.put(NODES, node("n2"))
        await until(lambda: _same(places(cluster), 8))
        await api.put(NODES, {**node("n2"), "spec": {"unschedulable": True}})
        await until(lambda: _same(places(cluster), 4))
        tainted = {"taints": [{"key": "k", "value": "v", "effect": "NoSchedule"}]}
        await api.put(NODES, {**node("n1"), "spec": tainted})
        await until(lambda: _same(places(cluster), 0))
        await api.put(NODES, node("n2", ready="Unknown"))
        await api.put(NODES, node("n1"))
        await until(lambda: _same(places(cluster), 4))
        await api.remove(NODES, "n1")
        await until(lambda: _same(places(cluster), 0))


async def test_a_sandbox_is_in_it_by_its_id_and_one_that_found_no_room_is_told(
    api: FakeKubernetes, opener: Opener
) -> None:
    told: list[None] = []
    async with opener(disagreed=lambda: told.append(None)) as cluster:
        ours = {**other("sb-1", "2"), "metadata": {"name": "sb-1", "namespace": NAMESPACE, "labels": LABELS}}
        assert room(cluster).reserve("sb-1", cluster.request(SPEC), {})
        assert places(cluster) == 3
        await api.put(PODS, ours)
        await until(lambda: _same("sb-1" in room(cluster), True))
        assert (places(cluster), room(cluster).fit_alone(cluster.request(SPEC), {})) == (0, 4)
        assert not told
        # In the same namespace, and not a sandbox of this installation.
        for name, labels in (("x", {}), ("sb-9", {**LABELS, LABEL_INSTALLATION: "other"})):
            await api.put(PODS, {**ours, "metadata": {"name": name, "namespace": NAMESPACE, "labels": labels}})
        await until(lambda: _same(f"{NAMESPACE}/sb-9" in room(cluster), True))
        assert not told
        assert [one.sandboxes for one in room(cluster).free()] == [1]
        await api.put(PODS, {**ours, "metadata": {"name": "sb-2", "namespace": NAMESPACE, "labels": LABELS}})
        await until(lambda: _same(len(told), 1))


async def test_where_a_scheduler_packs_pods_name_it_and_prefer_the_fullest_node_with_room(
    api: FakeKubernetes, opener: Opener
) -> None:
    for name in ("n2", "n3"):
        await api.put(NODES, node(name))
    await api.put(EVERYWHERE, {**other("x", "600m"), "spec": {**other("x", "600m")["spec"], "nodeName": "n2"}})
    await api.put(EVERYWHERE, {**other("y", "1900m"), "spec": {**other("y", "1900m")["spec"], "nodeName": "n3"}})

    async def preferred(cluster: KubernetesCluster, name: str, *avoid: str) -> list[str]:
        await cluster.start(name, SPEC, Boot("t", "k", "{}", avoid))
        spec = api.objects[PODS][name]["spec"]
        assert spec.get("schedulerName") == ("packs" if cluster._defaults.scheduler else None)
        terms = spec.get("affinity", {}).get("nodeAffinity", {})
        wishes = terms.get("preferredDuringSchedulingIgnoredDuringExecution", [])
        named = [one["preference"]["matchFields"][0] for one in wishes]
        return [one["values"][0] for one in named if one["operator"] == "In"]

    async with opener(scheduler="packs") as cluster:
        assert await preferred(cluster, "sb-1") == ["n2"]
        assert await preferred(cluster, "sb-2", "n2") == ["n1"]
        # Where it has room reserved it is expected.
        assert room(cluster).reserve("sb-3", cluster.request(SPEC), {})
        assert await preferred(cluster, "sb-3") == ["n2"]
        assert await preferred(cluster, "sb-4", "n1", "n2") == []
    async with opener() as cluster:
        assert await preferred(cluster, "sb-5") == []


async def test_without_the_right_to_list_all_pods_it_is_not_known(api: FakeKubernetes, opener: Opener) -> None:
    api.faults.append(Fault("GET", "GET /api/v1/pods", times=3, status=403, reason="Forbidden"))
    async with opener() as cluster:
        assert not room(cluster).known
        # It is tried again: the right may come later.
        await until(lambda: _same(room(cluster).known, True))
        assert places(cluster) == 4


async def test_it_is_not_known_any_more_when_the_right_is_taken_away(api: FakeKubernetes, opener: Opener) -> None:
    async with opener() as cluster:
        heard: list[bool] = []
        room(cluster).listen(lambda: heard.append(room(cluster).known))
        # The watch is refused, then the list, then both are allowed again.
        api.faults.append(Fault("GET", "GET /api/v1/pods", times=2, status=403, reason="Forbidden"))
        await api.close_streams()
        await until(lambda: _same(False in heard, True))
        await until(lambda: _same(room(cluster).known, True))
        assert places(cluster) == 4


async def _listed_again(api: FakeKubernetes, path: str) -> None:
    """Has one watch told that its version is too old."""
    expired = Fault("GET", path, times=1, status=410, reason="Expired")
    api.faults.append(expired)
    await api.close_streams()
    await until(lambda: _same(expired.times, 0))
    await until(lambda: _same(len(api.watches(PODS)) + len(api.watches(EVERYWHERE)), 2))


async def _same(found: object, expected: object) -> bool:
    return found == expected
