"""Data sets on Kubernetes: which the backend takes, what it says of their claims, and what a pod gets of them."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from controlplane.cluster import Boot, DatasetAt, ScratchAt
from controlplane.cluster.kubernetes import KubernetesCluster
from controlplane.cluster.kubernetes.pods.mounts import check_kept, claim_trouble
from controlplane.errors import Problem
from controlplane.model import SandboxSpec
from controlplane.model.dataset import DatasetSpec
from tests.contract.kubernetes.conftest import Opener
from tests.support.fake_kubernetes import CLAIMS, NAMESPACE, PODS, FakeKubernetes, Fault

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
        with pytest.raises(Problem, match=r"scratch\.storageClass of the chart") as refused:
            await plain.mounts.check_scratch("k", 1 << 30)
        assert refused.value.code == "unsupported"
    async with opener(dataset_folders=("/srv/data",), image_volumes=True) as open_to_both:
        for one in (papers, image, folder, below):
            open_to_both.mounts.check_dataset(one)
        with pytest.raises(Problem, match="allowed are those in /srv/data "):
            open_to_both.mounts.check_dataset(beside)


PAPERS = DatasetAt("/data", "papers", DatasetSpec(claim="papers"))
SHARED = ScratchAt("/cache", "a" * 32, 1 << 30)
NAME = f"rollbox-scratch-r-{'a' * 32}"


async def started(cluster: KubernetesCluster, name: str, *mounts: ScratchAt | DatasetAt, **more: Any) -> None:
    await cluster.start(name, SandboxSpec(image="a", **more), replace(BOOT, mounts=mounts or [SHARED]))


def owners(api: FakeKubernetes) -> list[str]:
    return [one["name"] for one in api.objects[CLAIMS][NAME]["metadata"]["ownerReferences"]]


async def test_a_scratch_is_a_claim_of_its_pods_and_goes_with_the_last(api: FakeKubernetes, opener: Opener) -> None:
    async with opener(scratch_class="shared") as cluster:
        await started(cluster, "sb-0", PAPERS)
        assert not api.objects[CLAIMS]
        await started(cluster, "sb-1", SHARED, replace(SHARED, path="/too"))
        made = api.objects[CLAIMS][NAME]
        assert made["spec"] == {
            "accessModes": ["ReadWriteMany"],
            "storageClassName": "shared",
            "resources": {"requests": {"storage": str(1 << 30)}},
        }
        pod = api.objects[PODS]["sb-1"]
        assert made["metadata"]["ownerReferences"] == [
            {"apiVersion": "v1", "kind": "Pod", "name": "sb-1", "uid": pod["metadata"]["uid"]}
        ]
        volumes = [one["persistentVolumeClaim"] for one in pod["spec"]["volumes"][1:]]
        assert volumes == [{"claimName": NAME}] * 2
        sidecar, target = pod["spec"]["containers"]
        assert [one["mountPath"] for one in target["volumeMounts"][1:]] == ["/cache", "/too"]
        assert not any(one.get("readOnly") for one in target["volumeMounts"][1:])
        # By their places the sidecar knows that they are no folders of the image's; it mounts none of them.
        assert {"name": "ROLLBOX_SIDECAR_WRITABLE_MOUNTS", "value": "/cache:/too"} in sidecar["env"]
        assert [one["name"] for one in sidecar["volumeMounts"]] == ["rollbox"]
        await started(cluster, "sb-2")
        assert owners(api) == ["sb-1", "sb-2"]
        await cluster.stop("sb-1")
        assert owners(api) == ["sb-2"]
        await cluster.stop("sb-2")
        assert api.objects[CLAIMS] == {}


async def test_pods_at_once_share_one_claim_and_a_repeated_start_makes_none(
    api: FakeKubernetes, opener: Opener
) -> None:
    async with opener(scratch_class="shared") as cluster:
        await asyncio.gather(*(started(cluster, f"sb-{number}") for number in range(8)))
        assert sorted(owners(api)) == [f"sb-{number}" for number in range(8)]
        await started(cluster, "sb-3")
        assert len(owners(api)) == 8
        # Its pod was made, and its claim was not, when this replica lost the answer.
        await api.put(PODS, {**api.objects[PODS]["sb-0"], "metadata": {"name": "sb-9", "uid": "nine"}})
        await started(cluster, "sb-9", replace(SHARED, key="b" * 32))
        assert set(api.objects[CLAIMS]) == {NAME, f"rollbox-scratch-r-{'b' * 32}"}
        await asyncio.gather(*(cluster.stop(f"sb-{number}") for number in (*range(8), 9)))


async def test_a_scratch_of_another_size_is_a_conflict_and_one_that_nobody_has_is_none(
    api: FakeKubernetes, opener: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("controlplane.cluster.kubernetes.pods.scratch.LOOK_EVERY_S", 0.01)
    other = replace(SHARED, size_bytes=2 << 30)
    async with opener(scratch_class="shared") as cluster:
        await cluster.mounts.check_scratch(SHARED.key, 1 << 30)
        await started(cluster, "sb-1")
        for refused in (cluster.mounts.check_scratch(SHARED.key, 2 << 30), started(cluster, "sb-2", other)):
            with pytest.raises(Problem, match="another size") as caught:
                await refused
            assert caught.value.code == "conflict"
        # The collector has not come yet: what is there was of others, and the new one begins empty.
        api.objects[CLAIMS][NAME]["metadata"]["ownerReferences"] = [{"name": "sb-0", "uid": "zero"}]
        await cluster.stop("sb-1")
        await cluster.mounts.check_scratch(SHARED.key, 2 << 30)
        await started(cluster, "sb-3", other)
        assert owners(api) == ["sb-3"]
        # One that is never removed is told in the time of the start; before that, where sandboxes still have it.
        api.objects[CLAIMS][NAME]["metadata"] |= {"deletionTimestamp": "2026-01-01T00:00:00Z"}
        with pytest.raises(Problem, match="not gone in time") as late:
            await started(cluster, "sb-4", other, start_timeout_ms=200)
        assert late.value.code == "capacity_unavailable"
        with pytest.raises(Problem, match="is being removed while sandboxes have it") as vanishing:
            await cluster.mounts.check_scratch(SHARED.key, 2 << 30)
        assert vanishing.value.code == "dataset_unavailable"
        await asyncio.gather(*(cluster.stop(name) for name in ("sb-2", "sb-3", "sb-4")))
