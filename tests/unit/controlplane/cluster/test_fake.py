"""The fake cluster of the other tests passes the suite of all clusters."""

import pytest

from controlplane.model import SandboxSpec
from tests.contract.cluster_suite import ClusterSuite
from tests.support.fake_cluster import FakeCluster
from tests.support.world import SPEC


class TestFakeCluster(ClusterSuite):
    """See `ClusterSuite`."""

    @pytest.fixture
    def cluster(self) -> FakeCluster:
        return FakeCluster(ready_s=None)

    @pytest.fixture
    def spec(self) -> SandboxSpec:
        return SPEC
