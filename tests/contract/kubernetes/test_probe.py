"""What `rollbox doctor --cluster` says of clusters that lack something."""

from pathlib import Path

from controlplane.cluster.kubernetes.doctor.probe import probe
from controlplane.cluster.kubernetes.nodes.proof import ANNOTATION, Proof
from tests.support.fake_kubernetes import NODES, PODS, FakeKubernetes, Fault, node

ENDED = {"ended sandboxes": True}


async def marks(kubeconfig: Path, runtime_class: str = "gvisor") -> dict[str, bool]:
    """All but the network, which has tests of its own."""
    found = await probe(kubeconfig, runtime_class, "")
    assert (found[-1].name, found[-1].ok) == ("network policies", False)
    assert "--image" in found[-1].fix
    return {one.name: one.ok for one in found[:-1]}


async def test_a_cluster_that_has_everything(api: FakeKubernetes, kubeconfig: Path) -> None:
    assert await marks(kubeconfig) == {"API server": True, "RuntimeClass": True, "gVisor": True, "nodes": True, **ENDED}


async def test_what_a_node_does_not_stop_is_named_with_what_to_do(api: FakeKubernetes, kubeconfig: Path) -> None:
    about = {"name": "sb-hung", "deletionTimestamp": "2026-01-01T00:00:00Z"}
    await api.put(PODS, {"metadata": about, "spec": {"nodeName": "n1"}})
    found = {one.name: one for one in await probe(kubeconfig, "gvisor", "")}["ended sandboxes"]
    assert not found.ok
    assert "sb-hung on n1 for " in found.detail
    assert "runsc-sandbox" in found.fix


async def test_settings_that_bound_a_node_are_named_and_it_is_proven(api: FakeKubernetes, kubeconfig: Path) -> None:
    one = node()
    low = "kernel.pid_max is 32768, and 47104 is needed for 256 sandboxes"
    one["metadata"]["annotations"] = {ANNOTATION: Proof(installer="installed", low=[low]).text()}
    await api.put(NODES, one)
    found = {one.name: one for one in await probe(kubeconfig, "gvisor", "")}["node n1"]
    assert found.ok
    assert f"its kernel bounds how many it holds: {low}" in found.detail


async def test_nodes_without_the_runtime(api: FakeKubernetes, kubeconfig: Path) -> None:
    await api.put(NODES, node(runtimeHandlers=[{"name": ""}, {"name": "runc"}]))
    found = {one.name: one for one in await probe(kubeconfig, "gvisor", "")}
    assert not found["gVisor"].ok
    assert "runsc" in found["gVisor"].detail
    assert "Install gVisor" in found["gVisor"].fix
    assert not found["nodes"].ok


async def test_a_class_that_is_not_there_yet_is_the_charts_to_make(api: FakeKubernetes, kubeconfig: Path) -> None:
    api.runtime_classes.clear()
    assert all((await marks(kubeconfig)).values())


async def test_no_node_is_ready(api: FakeKubernetes, kubeconfig: Path) -> None:
    await api.put(NODES, node(ready="Unknown"))
    assert await marks(kubeconfig) == {
        "API server": True,
        "RuntimeClass": True,
        "gVisor": True,
        "nodes": False,
        **ENDED,
    }


async def test_an_api_server_that_refuses(api: FakeKubernetes, kubeconfig: Path) -> None:
    api.faults = [Fault("GET", "/version", 401, "Unauthorized")]
    (found,) = await probe(kubeconfig, "gvisor", "")
    assert not found.ok
    assert "KUBECONFIG" in found.fix


async def test_a_release_that_is_not_there_is_named_with_those_that_are(api: FakeKubernetes, kubeconfig: Path) -> None:
    named = {"app.kubernetes.io/name": "rollbox", "app.kubernetes.io/component": "controlplane"}
    about = {"name": "a-controlplane", "labels": {**named, "app.kubernetes.io/instance": "a"}}
    api.objects["/apis/apps/v1/deployments"] = {"a-controlplane": {"metadata": about, "spec": {}}}
    last = (await probe(kubeconfig, "gvisor", "", release="b"))[-1]
    assert (last.name, last.ok, last.detail) == ("release", False, "no release b is on this cluster; there are a")
    assert "--release" in last.fix
