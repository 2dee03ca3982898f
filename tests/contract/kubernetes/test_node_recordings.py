"""A recording of a node's agent over a real connection: told, refused, and lost while the command runs."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from pathlib import Path

import grpc
import pytest
from grpc import aio

from controlplane.cluster.kubernetes.node_agents.addresses import Addresses
from controlplane.cluster.kubernetes.node_agents.agents import NodeAgents
from controlplane.cluster.protocol import OpenedFiles
from controlplane.errors import Problem
from controlplane.errors.rpc import abort
from controlplane.settings import NodeAgentSettings
from controlplane.wire import node_pb2, node_pb2_grpc
from tests.support.authority import Authority


class Agent(node_pb2_grpc.NodeServicer):
    """Tells one file, or breaks off.

    Attributes:
        lost: while it is set, a recording that has begun ends with a failure.
    """

    def __init__(self) -> None:
        self.lost = asyncio.Event()

    async def Record(  # noqa: N802 - the name in the contract
        self, requests: AsyncIterator[node_pb2.RecordRequest], context: "aio.ServicerContext[object, object]"
    ) -> AsyncGenerator[node_pb2.Recording, None]:
        yield node_pb2.Recording(begun=node_pb2.Recording.Begun())

        async def over() -> None:
            async for _ in requests:
                pass

        ended, lost = asyncio.ensure_future(over()), asyncio.ensure_future(self.lost.wait())
        try:
            await asyncio.wait((ended, lost), return_when=asyncio.FIRST_COMPLETED)
            if not ended.done():
                await abort(context, Problem("upstream_timeout", "the recorder is gone"))
        finally:
            for task in (ended, lost):
                task.cancel()
        yield node_pb2.Recording(opened=node_pb2.Recording.Opened(paths=["/a"], more=True))


@pytest.fixture
def agent() -> Agent:
    return Agent()


@pytest.fixture
async def agents(agent: Agent, tmp_path: Path) -> AsyncIterator[NodeAgents]:
    tls = Authority().write(tmp_path, "agent")
    ca, key, certificate = ((tls / name).read_bytes() for name in ("ca.crt", "tls.key", "tls.crt"))
    server = aio.server()
    node_pb2_grpc.add_NodeServicer_to_server(agent, server)  # type: ignore[no-untyped-call]
    identity = grpc.ssl_server_credentials([(key, certificate)], ca, require_client_auth=True)
    port = server.add_secure_port("127.0.0.1:0", identity)
    await server.start()
    addresses = Addresses()
    addresses.replace([_piece(port)])
    found = NodeAgents(addresses, NodeAgentSettings("ns", "node", "agent", tls))
    yield found
    await found.close()
    await server.stop(None)


def _piece(port: int) -> dict[str, object]:
    ready = {"nodeName": "n1", "addresses": ["127.0.0.1"], "conditions": {"ready": True}}
    return {"metadata": {"name": "a"}, "ports": [{"port": port}], "endpoints": [ready]}


class Command:
    """Runs until it is told to end, or is broken off."""

    def __init__(self) -> None:
        self.runs, self.may_end = asyncio.Event(), asyncio.Event()
        self.broken_off = False

    async def __call__(self) -> None:
        self.runs.set()
        try:
            await self.may_end.wait()
        except asyncio.CancelledError:
            self.broken_off = True
            raise


async def test_what_was_opened_is_told_when_the_command_is_over(agents: NodeAgents) -> None:
    command = Command()
    recording = asyncio.create_task(agents.opened("n1", "sb-1", command))
    await command.runs.wait()
    command.may_end.set()
    assert await recording == OpenedFiles(("/a",), more=True)


async def test_a_recorder_that_is_lost_ends_the_command_at_once(agents: NodeAgents, agent: Agent) -> None:
    command = Command()
    recording = asyncio.create_task(agents.opened("n1", "sb-1", command))
    await command.runs.wait()
    agent.lost.set()
    with pytest.raises(Problem, match="the recorder is gone") as caught:
        await asyncio.wait_for(recording, 20)
    assert (caught.value.code, caught.value.details["node"], command.broken_off) == ("upstream_timeout", "n1", True)


async def test_an_agent_whose_address_is_gone_is_named_and_nobody_is_cancelled(agents: NodeAgents) -> None:
    command = Command()
    recording = asyncio.create_task(agents.opened("n1", "sb-1", command))
    await command.runs.wait()
    agents._addresses.replace([])
    with pytest.raises(Problem, match="n1 has no agent"):
        await agents.images("n1")  # closes the channel
    with pytest.raises(Problem, match="the agent of node n1 went away") as caught:
        await asyncio.wait_for(recording, 20)
    assert (caught.value.code, command.broken_off) == ("upstream_timeout", True)


async def test_a_caller_that_leaves_is_cancelled_with_its_command(agents: NodeAgents) -> None:
    command = Command()
    recording = asyncio.create_task(agents.opened("n1", "sb-1", command))
    await command.runs.wait()
    recording.cancel()
    with pytest.raises(asyncio.CancelledError):
        await recording
    assert command.broken_off


async def test_a_command_that_fails_is_no_fault_of_the_agent(agents: NodeAgents) -> None:
    async def fails() -> None:
        raise Problem("exec_deadline", "too long")

    with pytest.raises(Problem, match="too long"):
        await agents.opened("n1", "sb-1", fails)


class Older(node_pb2_grpc.NodeServicer):
    """An agent that records nothing."""


@pytest.mark.parametrize("agent", [Older()])
async def test_an_agent_of_an_older_version_is_named_as_one(agents: NodeAgents) -> None:
    with pytest.raises(
        Problem, match="the agent of node n1 does not know this call: it is of another version"
    ) as caught:
        await agents.opened("n1", "sb-1", Command())
    assert (caught.value.code, caught.value.details["node"]) == ("unsupported", "n1")
