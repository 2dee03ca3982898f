"""The fake cluster, its sidecars and gateways, which other tests use, pass the suites of the real ones."""

from dataclasses import dataclass, field

import pytest

from controlplane.model import SandboxSpec
from tests.contract.cluster_suite import ClusterSuite
from tests.contract.sidecars_suite import GatewaysSuite, Reached, SidecarsSuite, Up
from tests.support.fake_cluster import FakeCluster, FakeGateways, FakeSidecars
from tests.support.world import SPEC


class TestFakeCluster(ClusterSuite):
    """See `ClusterSuite`."""

    @pytest.fixture
    def cluster(self) -> FakeCluster:
        return FakeCluster(ready_s=None)

    @pytest.fixture
    def spec(self) -> SandboxSpec:
        return SPEC


class TestFakeSidecars(SidecarsSuite):
    """See `SidecarsSuite`."""

    @pytest.fixture
    def up(self) -> Up:
        return Up(FakeSidecars(dead={"unix:/fake/sb-2"}), "sb-1", "unix:/fake/sb-1", "t", gone="unix:/fake/sb-2")


@dataclass
class FakeReached:
    """One sandbox behind fake gateways."""

    sandbox_id: str = "sb-1"
    token: str = "t"
    gateways: FakeGateways = field(default_factory=FakeGateways)
    away: FakeGateways = field(default_factory=lambda: FakeGateways(away=True))

    async def silence(self) -> None:
        self.gateways.unreached.add(self.sandbox_id)


class TestFakeGateways(GatewaysSuite):
    """See `GatewaysSuite`."""

    @pytest.fixture
    def reached(self) -> Reached:
        return FakeReached()
