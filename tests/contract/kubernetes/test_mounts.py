"""Data sets on Kubernetes: which the backend takes, what it says of their claims, and what a pod gets of them."""

from dataclasses import replace
from typing import Any

import pytest

from controlplane.cluster import Boot, DatasetAt
from controlplane.cluster.kubernetes import KubernetesCluster
from controlplane.cluster.kubernetes.pods.mounts import check_kept, claim_trouble
from controlplane.errors import Problem
from controlplane.model import SandboxSpec
from controlplane.model.dataset import DatasetSpec
from tests.contract.kubernetes.conftest import Opener
from tests.support.fake_kubernetes import NAMESPACE, PODS, FakeKubernetes, Fault

CLAIMS = f"/api/v1/namespaces/{NAMESPACE}/persistentvolumeclaims"
BOOT = Boot("t", "k", "{}")


def claim(*modes: str, phase: str = "Bound", **metadata: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": "papers", **metadata},
        "spec": {"accessModes": list(modes)},
        "status": {"phase": phase},
    }


async def test_a_pod_has_its_data_sets_read_only_and_its_sidecar_has_none(
    api: FakeKubernetes, cluster: KubernetesCluster
) -> None:
    mounts = [
        DatasetAt("/data", "papers", DatasetSpec(claim="papers")),
        DatasetAt("/models", "models", DatasetSpec(image="models:1")),
        DatasetAt("/srv/more", "more", DatasetSpec(folder="/srv/data/more")),
    ]
    await cluster.start("sb-1", SandboxSpec(image="a"), replace(BOOT, mounts=mounts))
    made = api.objects[PODS]["sb-1"]["spec"]
    assert made["volumes"][1:] == [
        {"name": "dataset-0", "persistentVolumeClaim": {"claimName": "papers", "readOnly": True}},
        {"name": "dataset-1", "image": {"reference": "models:1", "pullPolicy": "IfNotPresent"}},
        {"name": "dataset-2", "hostPath": {"path": "/srv/data/more", "type": "Directory"}},
    ]
    sidecar, target = made["containers"]
    assert [one["mountPath"] for one in sidecar["volumeMounts"]] == ["/.rollbox"]
    assert [(one["name"], one["mountPath"]) for one in target["volumeMounts"][1:]] == [
        ("dataset-0", "/data"),
        ("dataset-1", "/models"),
        ("dataset-2", "/srv/more"),
    ]
    assert all(one["readOnly"] is True for one in target["volumeMounts"])
    await cluster.stop("sb-1")


def test_a_volume_that_the_api_server_leaves_out_is_missed() -> None:
    image = DatasetAt("/models", "models", DatasetSpec(image="models:1"))
    claimed = DatasetAt("/data", "papers", DatasetSpec(claim="papers"))
    volumes = [{"name": "rollbox", "emptyDir": {}}, {"name": "dataset-0", "persistentVolumeClaim": {}}]
    check_kept([claimed], {"spec": {"volumes": volumes}})
    for left in (volumes, [*volumes, {"name": "dataset-1"}]):
        with pytest.raises(Problem, match="no image volumes") as refused:
            check_kept([claimed, image], {"spec": {"volumes": left}})
        assert refused.value.code == "dataset_unavailable"


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (claim("ReadOnlyMany"), ""),
        (claim("ReadWriteOnce", "ReadWriteMany"), ""),
        # One that waits for its first consumer.
        (claim("ReadOnlyMany", phase="Pending"), ""),
        (claim("ReadWriteOnce"), "the claim papers is for one node (ReadWriteOnce): it has to be ReadOnlyMany or"),
        (claim("ReadOnlyMany", phase="Lost"), "the claim papers is Lost"),
        (claim("ReadOnlyMany", deletionTimestamp="2026-01-01T00:00:00Z"), "the claim papers is being removed"),
    ],
)
def test_what_keeps_many_pods_from_a_claim(found: dict[str, Any], said: str) -> None:
    told = claim_trouble("papers", found)
    assert told.startswith(said)
    assert bool(told) == bool(said)


async def test_a_claim_is_looked_at_and_a_herd_asks_once(api: FakeKubernetes, cluster: KubernetesCluster) -> None:
    papers, other = DatasetSpec(claim="papers"), DatasetSpec(claim="other")
    api.objects[CLAIMS] = {"papers": claim("ReadOnlyMany")}
    assert [await cluster.mounts.trouble(papers) for _ in range(3)] == ["", "", ""]
    assert sum(CLAIMS in call for call in api.calls) == 1
    assert await cluster.mounts.trouble(other) == f"there is no claim other in the namespace {NAMESPACE}"
    api.faults = [Fault("GET", "persistentvolumeclaims/third", 403, "Forbidden")]
    with pytest.raises(Problem):
        await cluster.mounts.trouble(DatasetSpec(claim="third"))


async def test_folders_and_images_are_taken_where_the_installation_says_so(opener: Opener) -> None:
    folder, below, beside = (DatasetSpec(folder=f"/srv/data{rest}") for rest in ("", "/x/y", "-2"))
    image, papers = DatasetSpec(image="models:1"), DatasetSpec(claim="papers")
    async with opener() as plain:
        plain.mounts.check_dataset(papers)
        for one, code in ((folder, "permission_denied"), (image, "unsupported")):
            with pytest.raises(Problem, match="of the chart") as refused:
                plain.mounts.check_dataset(one)
            assert refused.value.code == code
        with pytest.raises(Problem, match="an engine only") as refused:
            await plain.mounts.check_scratch("k", 1 << 30)
        assert refused.value.code == "unsupported"
    async with opener(dataset_folders=("/srv/data",), image_volumes=True) as open_to_both:
        for one in (papers, image, folder, below):
            open_to_both.mounts.check_dataset(one)
        with pytest.raises(Problem, match="allowed are those in /srv/data "):
            open_to_both.mounts.check_dataset(beside)
