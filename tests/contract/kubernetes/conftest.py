"""A `KubernetesCluster` on an API server in this process."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from controlplane.cluster.kubernetes import KubernetesCluster
from controlplane.settings import KubernetesSettings
from tests.support.fake_kubernetes import NAMESPACE, FakeKubernetes, fake_kubernetes

Opener = Callable[..., AbstractAsyncContextManager[KubernetesCluster]]


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[FakeKubernetes]:
    async with fake_kubernetes(tmp_path) as fake:
        yield fake


@pytest.fixture
def kubeconfig(api: FakeKubernetes, tmp_path: Path) -> Path:
    assert api.url
    return tmp_path / "kubeconfig"


@pytest.fixture
def opener(api: FakeKubernetes, tmp_path: Path) -> Opener:
    assert api.url

    @asynccontextmanager
    async def opened(**more: Any) -> AsyncIterator[KubernetesCluster]:
        options: dict[str, Any] = {
            "namespace": NAMESPACE,
            "installation": "r",
            "sidecar_image": "sidecar:1",
            "ready_url": "http://127.0.0.1:8082",
            "runtime_class": "gvisor",
            "required_kernel": "gVisor",
            "dns_shards": 16,
            "starts_per_node": 8,
            "priority_class": "",
            "node_selector": {},
            "tolerations": (),
            "image_pull_secrets": (),
            "kubeconfig": tmp_path / "kubeconfig",
            **more,
        }
        beside = {name: options.pop(name) for name in ("registry", "egress", "forged", "disagreed") if name in options}
        async with KubernetesCluster.open(KubernetesSettings(**options), **beside) as cluster:
            yield cluster

    return opened


@pytest.fixture
async def cluster(opener: Opener) -> AsyncIterator[KubernetesCluster]:
    async with opener() as one:
        yield one
