"""The egress replica of the unit tests passes the suite that the real one passes."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from controlplane.clock import SystemClock
from controlplane.egress import EgressOptions
from controlplane.lifecycle import Options
from tests.contract.egress_suite import EgressReplicaSuite, Replica
from tests.support.egress_replica import egress_replica
from tests.support.world import World, world


class TestFakeEgressReplica(EgressReplicaSuite):
    """See `EgressReplicaSuite`."""

    @pytest.fixture
    async def plane(self) -> AsyncIterator[World]:
        async with world(clock=SystemClock(), options=Options(egress=EgressOptions(3128))) as made:
            yield made

    @pytest.fixture
    def replica(self, plane: World) -> Replica:
        @asynccontextmanager
        async def connected(name: str) -> AsyncIterator[None]:
            async with egress_replica(plane, name, link_up=False):
                yield

        return connected
