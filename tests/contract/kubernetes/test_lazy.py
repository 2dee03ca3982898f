"""How a start chooses between mounting its image lazily and fetching it whole, by what the nodes report."""

import asyncio

import pytest

from controlplane.cluster import Boot, Death
from controlplane.cluster.kubernetes import KubernetesCluster
from controlplane.errors import Problem
from controlplane.model import SandboxSpec
from tests.contract.kubernetes.conftest import Opener
from tests.support.eventually import eventually
from tests.support.fake_kubernetes import NODES, PODS, FakeKubernetes, node

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
