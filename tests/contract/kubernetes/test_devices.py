"""Devices of sandboxes on an API server: what is refused, what is counted, and what a pod asks for."""

from dataclasses import replace
from pathlib import Path

import pytest

from controlplane.clock import SystemClock
from controlplane.cluster import Boot
from controlplane.cluster.kubernetes import KubernetesCluster
from controlplane.cluster.kubernetes.api_server.client import KubernetesClient
from controlplane.cluster.kubernetes.doctor.release_checks import devices
from controlplane.cluster.kubernetes.doctor.releases import Release
from controlplane.cluster.kubernetes.nodes.devices import API, DeviceClaims
from controlplane.errors import Problem
from controlplane.model import SandboxSpec
from controlplane.settings import DeviceSettings
from tests.contract.kubernetes.conftest import Opener
from tests.contract.kubernetes.test_network import DEPLOYMENT
from tests.support.eventually import eventually
from tests.support.fake_kubernetes import NODES, PODS, FakeKubernetes, node
from tests.unit.controlplane.kubernetes.test_devices import USUAL, a_claim, a_slice, device_class

CLASSES, SLICES, CLAIMS = (f"{API}/{kind}" for kind in ("deviceclasses", "resourceslices", "resourceclaims"))
DEVICES = DeviceSettings("gpus", "r-gpu")
OWN = DeviceSettings("gpus", "r-gpu", "gvisor-gpu")
ONE, TWO, NONE = (SandboxSpec(image="a", gpu=count) for count in (1, 2, 0))
BOOT = Boot("t", "k", "{}")
RELEASE = Release.of(DEPLOYMENT)


@pytest.fixture
async def api(api: FakeKubernetes) -> FakeKubernetes:
    """One that serves devices, of which the node has two."""
    api.objects |= {"/apis/resource.k8s.io": {"v1": {"kind": "APIResourceList"}}, CLASSES: {}, SLICES: {}, CLAIMS: {}}
    await api.put(CLASSES, device_class(USUAL))
    await api.put(SLICES, a_slice("a", "b"))
    return api


def room(cluster: KubernetesCluster, spec: SandboxSpec = ONE) -> int:
    return cluster._rooms.room.fit(cluster.request(spec), {})


async def test_devices_are_counted_as_they_come_and_go(api: FakeKubernetes, opener: Opener) -> None:
    async with opener(devices=DEVICES) as cluster:
        cluster.check(TWO)
        assert room(cluster) == 2
        await api.put(CLAIMS, a_claim("a"))
        await eventually(lambda: room(cluster) == 1)
        # Others may give it back: it is no reason to refuse.
        cluster.check(TWO)
        await api.put(SLICES, a_slice("a", "b", "c"))
        await eventually(lambda: room(cluster) == 2)
        await api.put(SLICES, a_slice("b"))
        await eventually(lambda: room(cluster) == 1)
        with pytest.raises(Problem, match="needs 2 devices for sandboxes on one node; the largest node, n1, has 1"):
            cluster.check(TWO)
        await api.remove(CLASSES, "gpus")
        await eventually(lambda: room(cluster) == 0)
        with pytest.raises(Problem, match="no DeviceClass gpus"):
            cluster.check(ONE)
        cluster.check(NONE)


async def test_a_sandbox_claims_by_the_template_and_holds_what_it_claims(api: FakeKubernetes, opener: Opener) -> None:
    async with opener(devices=DEVICES) as cluster:
        await cluster.start("sb-1", ONE, BOOT)
        spec = api.objects[PODS]["sb-1"]["spec"]
        assert spec["resourceClaims"] == [{"name": "gpu-0", "resourceClaimTemplateName": "r-gpu"}]
        assert spec["runtimeClassName"] == "gvisor"
        await api.put(PODS, {**api.objects[PODS]["sb-1"], "spec": {**spec, "nodeName": "n1"}})
        await eventually(lambda: room(cluster) == 1)
        await cluster.stop("sb-1")
        await eventually(lambda: room(cluster) == 2)


async def test_a_node_without_the_runtime_for_devices_is_kept_off(api: FakeKubernetes, opener: Opener) -> None:
    api.runtime_classes["gvisor-gpu"] = {"handler": "runsc-gpu"}
    await api.put(SLICES, a_slice("c", on="n2"))
    await api.put(NODES, node("n2", runtimeHandlers=[{"name": "runsc"}, {"name": "runsc-gpu"}]))
    async with opener(devices=OWN) as cluster:
        assert room(cluster) == 1
        await cluster.start("sb-1", ONE, BOOT)
        await cluster.start("sb-2", NONE, BOOT)
        one, none = (api.objects[PODS][name]["spec"] for name in ("sb-1", "sb-2"))
        assert (one["runtimeClassName"], none["runtimeClassName"]) == ("gvisor-gpu", "gvisor")
        (term,) = one["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
        assert term["matchFields"] == [{"key": "metadata.name", "operator": "NotIn", "values": ["n1"]}]
        assert "affinity" not in none


async def test_a_runtime_class_that_there_is_not_is_told_at_the_start(api: FakeKubernetes, opener: Opener) -> None:
    assert api.url
    with pytest.raises(Problem, match="no RuntimeClass gvisor-gpu") as caught:
        async with opener(devices=OWN):
            pass
    assert caught.value.code == "isolation_missing"


async def test_an_api_server_without_devices_is_told_at_the_start(api: FakeKubernetes, opener: Opener) -> None:
    del api.objects["/apis/resource.k8s.io"]
    with pytest.raises(Problem, match=r"needs resource\.k8s\.io/v1 \(Kubernetes 1\.34\)"):
        async with opener(devices=DEVICES):
            pass


async def test_the_doctor_says_what_is_missing(api: FakeKubernetes, kubeconfig: Path) -> None:
    template = f"{API}/namespaces/{RELEASE.sandboxes}/resourceclaimtemplates"
    api.objects[template] = {}
    release = replace(RELEASE, devices=DeviceClaims("gpus", "r-gpu", "gvisor-gpu"))
    async with KubernetesClient.connect(kubeconfig, SystemClock()) as client:

        async def told(of: Release = release) -> str:
            (found,) = await devices.check(client, of)
            assert found.ok or "docs/gpu.md" in found.fix
            return found.detail

        assert await devices.check(client, RELEASE) == []
        assert await told() == f"there is no ResourceClaimTemplate r-gpu in {RELEASE.sandboxes}"
        await api.put(template, {"metadata": {"name": "r-gpu"}})
        assert await told() == "the cluster has no RuntimeClass gvisor-gpu"
        api.runtime_classes["gvisor-gpu"] = {"handler": "runsc-gpu"}
        assert await told() == "nodes with devices do not have the runtime runsc-gpu: n1"
        assert await told(replace(RELEASE, devices=DeviceClaims("gpus", "r-gpu"))) == (
            "2 of the DeviceClass gpus on 1 node"
        )
        await api.remove(SLICES, a_slice("a")["metadata"]["name"])
        assert await told() == "0 of the DeviceClass gpus on 0 nodes"
        await api.remove(CLASSES, "gpus")
        assert await told() == "the cluster has no DeviceClass gpus"
