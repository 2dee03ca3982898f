"""`rollbox-egress` follows the control plane's feed as the unit tests' replica does, over a real socket."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from controlplane.api.feed_key import FeedDoor
from controlplane.api.listeners import serving_routes
from controlplane.clock import SystemClock
from controlplane.egress import EgressOptions
from controlplane.lifecycle import Options
from controlplane.settings import Listen
from controlplane.telemetry import Metrics
from tests.contract.egress_suite import EgressReplicaSuite, Replica, egress, when
from tests.support.egress_program import KEY, egress_process
from tests.support.world import World, world


class TestEgressReplica(EgressReplicaSuite):
    """See `EgressReplicaSuite`."""

    @pytest.fixture
    async def plane(self, tmp_path: Path) -> AsyncIterator[World]:
        listen = Listen(path=tmp_path / "routes.sock")
        async with world(clock=SystemClock(), options=Options(egress=EgressOptions(3128))) as made:
            service = made.service
            door = FeedDoor(KEY, Metrics())
            async with serving_routes(service.board, service.activity, listen, service.egress_feed, door):
                yield made

    @pytest.fixture
    def replica(self, plane: World, program: Path, tmp_path: Path) -> Replica:
        @asynccontextmanager
        async def connected(name: str) -> AsyncIterator[None]:
            async with egress_process(program, tmp_path, name, tmp_path / "routes.sock"):
                await when(lambda: name in egress(plane).assignments.connected)
                yield

        return connected
