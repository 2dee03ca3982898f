"""The agent of a sandbox on the engine, called past the gateway and through it, as the control plane calls it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from uuid import uuid4

import pytest

from controlplane.cluster.by_gateway import HttpGateways
from controlplane.cluster.sidecar import GrpcSidecars
from rollbox import Sandbox
from tests.contract.agent_suite import AgentSuite, Called, called
from tests.contract.agent_suite import channel as channel_to
from tests.contract.sidecars_suite import GatewaysSuite, Reached, SidecarsSuite, Up
from tests.support.agent_calls import takes_its_own_token_only
from tests.support.containers import engine
from tests.support.silent_port import silent_port
from tests.support.stack import Stack
from tests.support.wire import token_of


def address(stack: Stack, sandbox_id: str) -> str:
    return f"unix:{stack.state_dir}/sandboxes/{sandbox_id}/agent.sock"


@pytest.mark.long
async def test_every_method_takes_the_sandboxs_own_token_and_no_other(stack: Stack, sandbox: Sandbox) -> None:
    await takes_its_own_token_only(stack, sandbox, address(stack, sandbox.id))


class TestEngineAgent(AgentSuite):
    """See `AgentSuite`."""

    @pytest.fixture
    async def sidecar(self, stack: Stack, sandbox: Sandbox) -> AsyncIterator[Called]:
        token, folder = await token_of(stack, sandbox.id), f"/tmp/{uuid4().hex}"
        await sandbox.files.mkdir(folder)
        async with channel_to(address(stack, sandbox.id)) as channel:
            yield called(channel, token, folder)


class TestEngineSidecars(SidecarsSuite):
    """See `SidecarsSuite`."""

    @pytest.fixture
    async def up(self, stack: Stack, sandbox: Sandbox) -> Up:
        token = await token_of(stack, sandbox.id)
        return Up(GrpcSidecars(), sandbox.id, address(stack, sandbox.id), token, gone=address(stack, "sb-none"))


@dataclass
class EngineReached:
    """A sandbox on the engine."""

    sandbox_id: str
    token: str
    gateways: HttpGateways
    away: HttpGateways

    async def silence(self) -> None:
        await engine("kill", "--signal", "STOP", f"rollbox-{self.sandbox_id}-sidecar")


class TestEngineGateways(GatewaysSuite):
    """See `GatewaysSuite`."""

    @pytest.fixture
    async def reached(self, stack: Stack, sandbox: Sandbox) -> AsyncIterator[Reached]:
        token = await token_of(stack, sandbox.id)
        with silent_port() as port:
            async with (
                HttpGateways.open(stack.url) as gateways,
                HttpGateways.open(f"http://127.0.0.1:{port}") as away,
            ):
                yield EngineReached(sandbox.id, token, gateways, away)
