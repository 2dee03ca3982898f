"""`rollbox-egress` follows the control plane's feed as the unit tests' replica does, over a real socket."""

from __future__ import annotations

import asyncio
import json
import subprocess
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
from tests.support.installed import ROOT
from tests.support.world import World, world

BUILD = ("setup/cargo.sh", "build", "--locked", "--quiet", "--package", "egress", "--bin", "rollbox-egress")

KEY = "0123456789abcdefghijklmnopqrstuvwxyz"


@pytest.fixture(scope="session")
def program() -> Path:
    """The program; the tests of the Rust workspace have built it already."""
    manifest = ("--manifest-path", "gateway-rs/Cargo.toml", "--message-format", "json")
    done = subprocess.run([*BUILD, *manifest], cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True)
    (found,) = {json.loads(line).get("executable") for line in done.stdout.splitlines()} - {None}
    return Path(found)


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
        key = tmp_path / "feed.key"
        key.write_text(f"{KEY}\n")

        @asynccontextmanager
        async def connected(name: str) -> AsyncIterator[None]:
            settings = {
                "FEED_URL": f"unix:{tmp_path / 'routes.sock'}",
                "FEED_KEY_FILE": str(key),
                "ID": name,
                "LISTEN": f"{tmp_path / name}.sock",
                "DRAIN_MS": "100",
            }
            environ = {f"ROLLBOX_EGRESS_{key}": value for key, value in settings.items()}
            quiet = asyncio.subprocess.DEVNULL
            process = await asyncio.create_subprocess_exec(program, env=environ, stdout=quiet, stderr=quiet)
            try:
                await when(lambda: name in egress(plane).board.connected)
                yield
            finally:
                process.terminate()
                assert await process.wait() == 0

        return connected
