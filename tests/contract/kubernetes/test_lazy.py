"""How a start chooses between mounting its image lazily and fetching it whole, by what the nodes report."""

import asyncio

import pytest

from controlplane.cluster import Boot, Death
from controlplane.cluster.kubernetes import KubernetesCluster
from controlplane.errors import Problem
from controlplane.model import SandboxSpec
from tests.contract.kubernetes.conftest import Opener
from tests.support.eventually import eventually
from tests.support.fake_kubernetes import EVENTS, NODES, PODS, FakeKubernetes, Fault, node

BOOT = Boot("t", "k", "{}")
SPEC = SandboxSpec(image="registry.example.com/estargz/python@sha256:" + "0" * 64)


def is_taken(cluster: KubernetesCluster) -> bool:
    """Whether a create that names lazy pulling is taken."""
    try:
        cluster.check(SPEC.model_copy(update={"pull": "lazy"}))
    except Problem as refused:
        return "n2 among them" not in refused.detail
    return True


async def test_a_node_that_gets_the_runtime_last_changes_how_sandboxes_start(
    api: FakeKubernetes, opener: Opener
) -> None:
    both = [{"name": "runsc"}, {"name": "runsc-lazy"}]
    api.runtime_classes["gvisor-lazy"] = {"handler": "runsc-lazy"}
    await api.put(NODES, node("n1", runtimeHandlers=both))
    await api.put(NODES, node("n2"))
    images = ["registry.example.com/estargz/"]
    async with opener(lazy_runtime_class="gvisor-lazy", lazy_images=images) as cluster:
        assert not is_taken(cluster)
        await cluster.start("sb-before", SPEC, BOOT)
        await api.put(NODES, node("n2", runtimeHandlers=both))
        await eventually(lambda: is_taken(cluster))
        await cluster.start("sb-after", SPEC, BOOT)
    made = {name: api.objects[PODS][name]["spec"] for name in ("sb-before", "sb-after")}
    assert {name: one["runtimeClassName"] for name, one in made.items()} == {
        "sb-before": "gvisor",
        "sb-after": "gvisor-lazy",
    }
    assert made["sb-before"]["containers"][1]["imagePullPolicy"] == "Always"


async def test_a_start_that_is_lazy_in_any_case_comes_to_nodes_that_mount_images(
    api: FakeKubernetes, opener: Opener
) -> None:
    """As the sandboxes are that try converted images, which no check refuses before."""
    both = [{"name": "runsc"}, {"name": "runsc-lazy"}]
    api.runtime_classes["gvisor-lazy"] = {"handler": "runsc-lazy"}
    await api.put(NODES, node("n1", runtimeHandlers=both))
    await api.put(NODES, node("n2"))
    spec = SPEC.model_copy(update={"pull": "lazy"})
    async with opener(lazy_runtime_class="gvisor-lazy", lazy_images=["registry.example.com/estargz/"]) as cluster:
        await cluster.start("sb-1", spec, BOOT)
        required = api.objects[PODS]["sb-1"]["spec"]["affinity"]["nodeAffinity"]
        assert required == {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [
                    {"matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["n2"]}]}
                ]
            }
        }
        await api.put(NODES, node("n1"))
        await eventually(lambda: not any("runsc-lazy" in (one.handlers or ()) for one in cluster._nodes.all))
        with pytest.raises(Problem, match="no node mounts images lazily now: 2 do not, n1 among them") as caught:
            await cluster.start("sb-2", spec, BOOT)
        assert caught.value.code == "capacity_unavailable"


async def test_a_start_that_is_undone_is_begun_anew_and_no_replica_takes_its_end_for_the_sandboxes(
    api: FakeKubernetes, opener: Opener
) -> None:
    async with opener() as cluster, opener() as other:
        await cluster.start("sb-1", SPEC, BOOT)
        await eventually(lambda: "sb-1" in other._pods)
        deaths: list[Death] = []

        async def listen() -> None:
            async for one in other.watch():
                deaths.append(one)

        listening = asyncio.create_task(listen())
        await cluster.undo_start("sb-1")
        assert api.objects[PODS] == {}
        await cluster.start("sb-1", SPEC.model_copy(update={"image": "plain"}), BOOT)
        await eventually(lambda: "sb-1" in other._pods)
        assert api.objects[PODS]["sb-1"]["spec"]["containers"][1]["image"] == "plain"
        assert deaths == []
        # Now its end is that of the sandbox again.
        pod = api.objects[PODS]["sb-1"]
        await api.put(PODS, {**pod, "metadata": {**pod["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}})
        await eventually(lambda: [one.cause for one in deaths] == ["sandbox_lost"])
        listening.cancel()
        await cluster.undo_start("sb-never")


WAITS = {"name": "target", "state": {"waiting": {"reason": "ContainerCreating"}}, "lastState": {}, "restartCount": 0}


@pytest.fixture
async def hanging(
    api: FakeKubernetes, cluster: KubernetesCluster, monkeypatch: pytest.MonkeyPatch
) -> KubernetesCluster:
    """A cluster with a sandbox whose kubelet waits for the runtime, and confirms nothing."""
    monkeypatch.setattr("controlplane.cluster.kubernetes.pods.removal.LOOK_AGAIN_S", 0.01)
    api.kubelet = False
    await cluster.start("sb-1", SPEC, BOOT)
    await api.patch_status("sb-1", phase="Pending", containerStatuses=[WAITS])
    return cluster


async def told(api: FakeKubernetes, reason: str, uid: str) -> None:
    """An event of a pod."""
    about = {"kind": "Pod", "name": "sb-1", "uid": uid}
    await api.put(EVENTS, {"metadata": {"name": f"{reason}-{uid}"}, "involvedObject": about, "reason": reason})


async def test_a_start_is_undone_also_while_its_kubelet_waits_for_a_runtime_that_hangs(
    api: FakeKubernetes, hanging: KubernetesCluster
) -> None:
    uid = api.objects[PODS]["sb-1"]["metadata"]["uid"]
    await told(api, "Scheduled", uid)
    await told(api, "Pulling", uid)
    await told(api, "Started", "another pod's")
    await hanging.undo_start("sb-1")
    assert api.objects[PODS] == {}
    await hanging.start("sb-1", SPEC.model_copy(update={"image": "plain"}), BOOT)
    assert api.objects[PODS]["sb-1"]["metadata"]["uid"] != uid


@pytest.mark.parametrize("sign", ["event", "status", "phase", "stop"])
async def test_a_pod_of_which_a_container_may_have_run_is_never_deleted_without_its_kubelet(
    api: FakeKubernetes, hanging: KubernetesCluster, sign: str
) -> None:
    if sign == "event":
        await told(api, "Created", api.objects[PODS]["sb-1"]["metadata"]["uid"])
    elif sign == "status":
        await api.patch_status("sb-1", containerStatuses=[WAITS, {**WAITS, "containerID": "containerd://1"}])
    elif sign == "phase":
        await api.patch_status("sb-1", phase="Running")
    ending = asyncio.create_task(hanging.stop("sb-1") if sign == "stop" else hanging.undo_start("sb-1"))
    looks = f"GET {PODS}/sb-1"
    await eventually(lambda: api.calls.count(looks) >= 3)
    assert sum(call.startswith("DELETE") for call in api.calls) == 1
    await api.remove(PODS, "sb-1")
    await ending


async def test_another_pod_of_the_name_is_not_deleted(api: FakeKubernetes, hanging: KubernetesCluster) -> None:
    other = Fault("DELETE", "/pods", 409, "Conflict", "the UID in the precondition does not match", times=1000)
    # The first one asks the kubelet, and is answered.
    api.faults = [Fault("DELETE", "/pods", 200, "", "", after=True), other]
    undoing = asyncio.create_task(hanging.undo_start("sb-1"))
    await eventually(lambda: sum(call.startswith("DELETE") for call in api.calls) >= 2)
    assert "sb-1" in api.objects[PODS]
    other.times = 0
    await undoing
