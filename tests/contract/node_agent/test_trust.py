"""The control plane's client and the real node agent: who trusts whom, and how failures arrive."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

from controlplane.cluster.kubernetes.node_agents import NodeAgents
from controlplane.cluster.kubernetes.node_agents.addresses import Addresses
from controlplane.errors import Problem
from controlplane.settings import NodeAgentSettings
from tests.support.authority import Authority
from tests.support.node_agent import CLIENT, SERVER, Agent, build, running, why_no_agent

if why_no_agent():
    pytest.skip(str(why_no_agent()), allow_module_level=True)


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("agent"))


@pytest.fixture
def authority() -> Authority:
    return Authority()


@pytest.fixture
async def agent(program: Path, authority: Authority, tmp_path: Path) -> AsyncIterator[Agent]:
    """One whose containerd is away."""
    tls = authority.write(tmp_path / "server", SERVER)
    async with running(program, {"TLS": str(tls), "CONTAINERD": str(tmp_path / "none.sock")}) as found:
        yield found


def client(agent: Agent, tls: Path, name: str = SERVER) -> NodeAgents:
    addresses = Addresses()
    host, _, port = agent.address.rpartition(":")
    endpoints = [{"nodeName": "node-1", "addresses": [host], "conditions": {"ready": True}}]
    addresses.put({"metadata": {"name": "a"}, "ports": [{"port": int(port)}], "endpoints": endpoints})
    return NodeAgents(addresses, NodeAgentSettings("rollbox", "rollbox-node", name, tls))


async def refusal(agents: NodeAgents) -> Problem:
    try:
        with pytest.raises(Problem) as caught:
            await agents.images("node-1")
    finally:
        await agents.close()
    return caught.value


async def test_an_agent_whose_containerd_is_away_says_so(agent: Agent, authority: Authority, tmp_path: Path) -> None:
    problem = await refusal(client(agent, authority.write(tmp_path / "client", CLIENT)))
    assert problem.code == "upstream_timeout"
    assert "the node's containerd does not answer" in problem.detail
    assert problem.details["node"] == "node-1"


@pytest.mark.parametrize("wrong", ["other authority", "expired", "other name"])
async def test_the_agent_answers_no_other_certificate(
    agent: Agent, authority: Authority, tmp_path: Path, wrong: str
) -> None:
    folder = tmp_path / "client"
    match wrong:
        case "other authority":
            Authority().write(folder, CLIENT)
            # So that the client at least trusts the agent.
            (folder / "ca.crt").write_bytes((tmp_path / "server/ca.crt").read_bytes())
        case "expired":
            authority.write(folder, CLIENT, lives=timedelta(minutes=-1))
        case "other name":
            authority.write(folder, SERVER)
    problem = await refusal(client(agent, folder))
    assert problem.code == "upstream_timeout"
    assert "containerd" not in problem.detail, "it has answered"


@pytest.mark.parametrize("wrong", ["other authority", "other name"])
async def test_the_control_plane_calls_no_other_server(
    agent: Agent, authority: Authority, tmp_path: Path, wrong: str
) -> None:
    tls = authority.write(tmp_path / "client", CLIENT)
    name = SERVER
    if wrong == "other authority":
        (tls / "ca.crt").write_bytes((Authority().write(tmp_path / "other", CLIENT) / "ca.crt").read_bytes())
    else:
        name = "node.other.rollbox"
    problem = await refusal(client(agent, tls, name))
    assert problem.code == "upstream_timeout"
    assert "containerd" not in problem.detail, "it was asked"


async def test_problems_of_the_agent_keep_their_code(agent: Agent, authority: Authority, tmp_path: Path) -> None:
    agents = client(agent, authority.write(tmp_path / "client", CLIENT))
    try:
        for code, call in (
            ("invalid_argument", agents.remove("node-1", "no name")),
            ("invalid_argument", agents.kill("node-1", "kube-proxy")),
            ("upstream_timeout", agents.kill("node-2", "sb-1")),
        ):
            with pytest.raises(Problem) as caught:
                await call
            assert caught.value.code == code
        with pytest.raises(Problem) as caught:
            async for _ in agents.prefetch("node-1", "hub/a:1", None, "another"):
                pass
        assert (caught.value.code, "runsc" in caught.value.detail) == ("invalid_argument", True)
    finally:
        await agents.close()
