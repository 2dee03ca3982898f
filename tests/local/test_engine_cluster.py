"""The engine backend passes the suite of all clusters, on the real engine, without a control plane."""

import asyncio
import os
import tempfile
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from controlplane.clock import SystemClock
from controlplane.cluster import Cluster
from controlplane.cluster.engine import EngineCluster
from controlplane.embedded.binaries import required
from controlplane.embedded.engines import engine
from controlplane.errors import Problem
from controlplane.lifecycle import SigningKey
from controlplane.model import SandboxSpec
from tests.contract.cluster_suite import BOOT, ClusterSuite
from tests.support import containers
from tests.support.images import IMAGE
from tests.support.world import PRIVATE

GOOD_BOOT = replace(BOOT, token_public_key=SigningKey(PRIVATE, SystemClock()).public_text)

# The engine tells at once; this is for a busy machine.
HEARD_WITHIN_S = 30


@pytest.fixture
async def cluster() -> AsyncIterator[EngineCluster]:
    with tempfile.TemporaryDirectory(prefix="rb-", dir="/tmp") as folder:
        async with engine(None, Path(folder), os.environ) as found:
            ready = Path(folder) / "ready"
            ready.mkdir()
            async with EngineCluster.open(
                engine_url=found.url,
                state_dir=Path(folder),
                ready_socket="ready.sock",
                sidecar_binary=required("sidecar").resolve(),
                target_binary=required("target").resolve(),
            ) as opened:
                yield opened


@pytest.fixture
def spec() -> SandboxSpec:
    return SandboxSpec(image=IMAGE)


class TestEngineCluster(ClusterSuite):
    """See `ClusterSuite`."""

    boot = GOOD_BOOT


async def test_a_container_that_is_killed_is_a_death(cluster: Cluster, spec: SandboxSpec) -> None:
    await cluster.start("sb-suite5", spec, GOOD_BOOT)
    deaths = cluster.watch()
    seen = asyncio.ensure_future(anext(deaths))
    try:
        await containers.engine("kill", "rollbox-sb-suite5-target")
        async with asyncio.timeout(HEARD_WITHIN_S):
            death = await seen
        assert (death.sandbox_id, death.cause) == ("sb-suite5", "sandbox_lost")
    finally:
        await deaths.aclose()  # type: ignore[attr-defined]
        await cluster.stop("sb-suite5")


async def test_a_sidecar_that_refuses_its_settings_is_heard(cluster: Cluster, spec: SandboxSpec) -> None:
    await cluster.start("sb-suite6", spec, BOOT)
    deaths = cluster.watch()
    try:
        async with asyncio.timeout(HEARD_WITHIN_S):
            death = await anext(deaths)
        assert "ROLLBOX_SIDECAR_TOKEN_PUBLIC_KEY" in death.detail
    finally:
        await deaths.aclose()  # type: ignore[attr-defined]
        await cluster.stop("sb-suite6")


async def test_an_image_that_is_nowhere_is_a_typed_failure(cluster: Cluster) -> None:
    with pytest.raises(Problem) as caught:
        await cluster.start("sb-suite7", SandboxSpec(image="rollbox.invalid/nothing:1"), GOOD_BOOT)
    assert caught.value.code in ("image_not_found", "image_pull_failed")
    await cluster.stop("sb-suite7")
