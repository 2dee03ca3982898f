"""Documents as custom resources: the suite, lost answers, other writers, and pools of agent-sandbox."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from controlplane.cluster.kubernetes import KubernetesClient, KubernetesDocuments
from controlplane.cluster.kubernetes.declared.agent_sandbox import TEMPLATES, WARM_POOLS
from controlplane.errors import Problem
from tests.contract.documents_suite import BODY, OTHER, DocumentsSuite
from tests.support.fake_kubernetes import NAMESPACE, FakeKubernetes, Fault

OURS = f"/apis/rollbox.dev/v1alpha1/namespaces/{NAMESPACE}"
POOLS, QUOTAS = f"{OURS}/sandboxpools", f"{OURS}/sandboxquotas"
THEIRS = f"/apis/extensions.agents.x-k8s.io/v1beta1/namespaces/{NAMESPACE}"


@pytest.fixture
async def client(api: FakeKubernetes, kubeconfig: Path) -> AsyncIterator[KubernetesClient]:
    api.objects |= {POOLS: {}, QUOTAS: {}}
    async with KubernetesClient.connect(kubeconfig) as one:
        yield one


@pytest.fixture
async def documents(client: KubernetesClient) -> AsyncIterator[KubernetesDocuments]:
    async with KubernetesDocuments.open(client, NAMESPACE) as opened:
        yield opened


class TestKubernetesDocuments(DocumentsSuite):
    """See `DocumentsSuite`."""


async def test_a_lost_answer_is_no_conflict(api: FakeKubernetes, documents: KubernetesDocuments) -> None:
    api.faults = [Fault("POST", "sandboxpools", after=True, drop=True)]
    first = await documents.put("pools", "p", BODY, "")
    api.faults = [Fault("PATCH", "sandboxpools/p", after=True, drop=True)]
    second = await documents.put("pools", "p", OTHER, first)
    found = await documents.get("pools", "p")
    assert found is not None
    assert (found.body, found.version) == (OTHER, second)


async def test_a_body_that_the_cluster_refuses_is_told_in_its_words(
    api: FakeKubernetes, documents: KubernetesDocuments
) -> None:
    api.faults = [Fault("POST", "sandboxpools", 422, "Invalid", "spec: min_warm must not be greater than max_warm")]
    with pytest.raises(Problem, match="min_warm must not be greater") as refused:
        await documents.put("pools", "p", BODY)
    assert refused.value.code == "invalid_argument"


async def test_a_cluster_without_the_resources_says_what_to_do(
    api: FakeKubernetes, documents: KubernetesDocuments
) -> None:
    del api.objects[POOLS]
    for asked in (documents.put("pools", "p", BODY), documents.list("pools")):
        with pytest.raises(Problem, match=r"kubectl apply .* -f files/crds/sandboxpools\.rollbox\.dev\.yaml"):
            await asked


async def test_a_status_that_cannot_be_written_is_nobodys_trouble(
    api: FakeKubernetes, documents: KubernetesDocuments
) -> None:
    await documents.put("pools", "p", BODY)
    api.faults = [Fault("PATCH", "status", 403, "Forbidden")]
    await documents.status("pools", "p", {"ready": 1})


def template(**container: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": "t", "uid": "t1", "generation": 1},
        "spec": {"podTemplate": {"spec": {"containers": [{"name": "c", "image": "py:3", **container}]}}},
    }


def warm_pool(replicas: int = 2, generation: int = 1) -> dict[str, Any]:
    spec = {"replicas": replicas, "sandboxTemplateRef": {"name": "t"}}
    return {"metadata": {"name": "w", "uid": "w1", "generation": generation}, "spec": spec}


async def test_warm_pools_of_agent_sandbox_are_pools_that_are_changed_there(
    api: FakeKubernetes, client: KubernetesClient
) -> None:
    templates, warm_pools = f"{THEIRS}/{TEMPLATES}", f"{THEIRS}/{WARM_POOLS}"
    api.objects |= {templates: {}, warm_pools: {}}
    await api.put(templates, template())
    await api.put(warm_pools, warm_pool())
    await api.put(POOLS, {"metadata": {"name": "ours", "uid": "o", "generation": 1}, "spec": BODY})
    async with KubernetesDocuments.open(client, NAMESPACE, adopt=True) as documents:
        watch = documents.watch("pools")
        ours, theirs = await anext(watch)
        assert (ours.name, theirs.name) == ("ours", "w")
        assert theirs.body == {"template": {"image": "py:3"}, "min_warm": 2, "max_warm": 2, "auto": False}
        await api.put(warm_pools, warm_pool(5, 2))
        assert [one.body["max_warm"] for one in await anext(watch)] == [3, 5]
        for asked in (documents.put("pools", "w", BODY), documents.remove("pools", "w")):
            with pytest.raises(Problem, match="declared by the SandboxWarmPool of that name"):
                await asked
        found = await documents.get("pools", "w")
        assert found is not None
        assert [one.name for one in await documents.list("pools")] == ["ours", "w"]
        await watch.aclose()  # type: ignore[attr-defined]
