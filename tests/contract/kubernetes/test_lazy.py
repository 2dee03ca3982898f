"""How a start chooses between mounting its image lazily and fetching it whole, by what the nodes report."""

from controlplane.cluster import Boot
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
