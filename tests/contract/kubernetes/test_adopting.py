"""Pools of agent-sandbox are read in the version of their API that the cluster serves, also when that changes."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from controlplane.cluster.documents import Document
from controlplane.cluster.kubernetes import KubernetesClient, KubernetesDocuments
from controlplane.cluster.kubernetes.declared import adopting
from controlplane.cluster.kubernetes.declared.agent_sandbox import GROUP, TEMPLATES, VERSIONS, WARM_POOLS
from tests.support.fake_kubernetes import NAMESPACE, FakeKubernetes, Fault
from tests.support.waiting import until

OURS = f"/apis/rollbox.dev/v1alpha1/namespaces/{NAMESPACE}"
NEW, OLD = VERSIONS


@pytest.fixture
async def documents(
    api: FakeKubernetes, kubeconfig: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[KubernetesDocuments]:
    monkeypatch.setattr(adopting, "LOOK_S", 0.05)
    api.objects |= {f"{OURS}/sandboxpools": {}, f"{OURS}/sandboxquotas": {}, f"/apis/{GROUP}": {}}
    async with (
        KubernetesClient.connect(kubeconfig) as client,
        KubernetesDocuments.open(client, NAMESPACE, adopt=True) as opened,
    ):
        yield opened


async def serve(api: FakeKubernetes, version: str, *pools: tuple[str, int]) -> None:
    """From now on this version is served, with a template and these pools; only that is whole which is told."""
    base = f"/apis/{GROUP}/{version}/namespaces/{NAMESPACE}"
    api.objects |= {f"{base}/{TEMPLATES}": {}, f"{base}/{WARM_POOLS}": {}}
    of_pod = {"containers": [{"name": "c", "image": "py:3"}]}
    meta = {"uid": "u", "generation": 1}
    template = {"metadata": {"name": "t", **meta}, "spec": {"podTemplate": {"spec": of_pod}}}
    await api.put(f"{base}/{TEMPLATES}", template)
    for name, replicas in pools:
        spec = {"replicas": replicas, "sandboxTemplateRef": {"name": "t"}}
        await api.put(f"{base}/{WARM_POOLS}", {"metadata": {"name": name, **meta}, "spec": spec})
    tell(api, version, TEMPLATES, WARM_POOLS)


def tell(api: FakeKubernetes, version: str, *plurals: str) -> None:
    """What the API server says that it serves."""
    listed: Any = {"resources": [{"name": plural} for plural in plurals]}
    api.objects[f"/apis/{GROUP}"][version] = listed


async def over(api: FakeKubernetes) -> bool:
    """Whether the fault has been met as often as it was to be."""
    await asyncio.sleep(0.01)
    return not api.faults[0].times


async def until_known(documents: KubernetesDocuments, *names: str) -> dict[str, Document]:
    async with asyncio.timeout(30):
        async for known in documents.watch("pools"):
            if tuple(one.name for one in known) == names:
                return {one.name: one for one in known}
    raise AssertionError


async def test_a_cluster_with_their_older_releases_is_read_as_it_is(
    api: FakeKubernetes, documents: KubernetesDocuments
) -> None:
    await serve(api, OLD, ("old", 2))
    assert (await until_known(documents, "old"))["old"].body["min_warm"] == 2


async def test_the_newer_version_is_preferred_and_followed_when_it_comes(
    api: FakeKubernetes, documents: KubernetesDocuments
) -> None:
    await serve(api, OLD, ("one", 1))
    await until_known(documents, "one")
    # Half of an upgrade.
    tell(api, NEW, TEMPLATES)
    api.faults = [Fault("GET", f"{GROUP}/{NEW}", 500, times=2)]
    await serve(api, NEW, ("one", 1), ("two", 5))
    assert (await until_known(documents, "one", "two"))["two"].body["max_warm"] == 5
    # The old one goes, and is not missed.
    api.objects = {path: held for path, held in api.objects.items() if f"{GROUP}/{OLD}" not in path}
    del api.objects[f"/apis/{GROUP}"][OLD]
    await serve(api, NEW, ("three", 3))
    await until_known(documents, "one", "three", "two")


async def test_an_api_server_that_cannot_tell_changes_nothing(
    api: FakeKubernetes, documents: KubernetesDocuments
) -> None:
    await serve(api, OLD, ("one", 1))
    await until_known(documents, "one")
    api.faults = [Fault("GET", f"{GROUP}/v", 403, "Forbidden", times=10)]
    await until(lambda: over(api))
    await serve(api, OLD, ("one", 1), ("two", 2))
    await until_known(documents, "one", "two")
