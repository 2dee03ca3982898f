"""The client of node providers against the reference server, over mutual TLS."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from controlplane.cluster.kubernetes.node_pools import provider as limits
from controlplane.cluster.kubernetes.node_pools import remote
from controlplane.cluster.kubernetes.node_pools.remote import RemoteProvider
from controlplane.errors import Problem
from controlplane.scaling import NodePool
from controlplane.scaling.seen import Group, Machine
from tests.support.authority import Authority
from tests.support.node_provider import NodeProvider, provided

POOL = NodePool("general", "grpc", "g", (1, 1, 1, 0, 1), 0, 9, {"pool": "general"})


@asynccontextmanager
async def called(folder: Path, provider: NodeProvider) -> AsyncIterator[RemoteProvider]:
    tls = Authority().write(folder, "provider")
    async with provided(provider, tls) as address, RemoteProvider.open(address, tls, "provider") as client:
        yield client


def reference() -> NodeProvider:
    async def make(group: str, name: str) -> str:
        del group
        return name

    async def unmake(name: str) -> None:
        del name

    return NodeProvider(["g"], make, unmake)


async def test_nodes_are_asked_for_and_removed(tmp_path: Path) -> None:
    async with called(tmp_path, reference()) as client:
        assert await client.look(POOL) == Group(0, [], "0")
        await client.ask(POOL, await client.look(POOL), 2, 0)
        group = await client.look(POOL)
        assert (group.target, group.machines) == (2, [Machine("g-1", "g-1"), Machine("g-2", "g-2")])
        await client.remove(POOL, group, [Machine("g-1", "g-1"), Machine("gone")])
        assert await client.look(POOL) == Group(1, [Machine("g-2", "g-2")], "2")


async def test_what_was_decided_on_older_facts_is_refused(tmp_path: Path) -> None:
    async with called(tmp_path, reference()) as client:
        old = await client.look(POOL)
        await client.ask(POOL, old, 1, 0)
        for call in (client.ask(POOL, old, 2, 0), client.remove(POOL, old, [Machine("g-1")])):
            with pytest.raises(Problem, match="version 0 is not 1") as refused:
                await call
            assert refused.value.code == "conflict"


async def test_failures_are_typed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    provider = reference()
    async with called(tmp_path, provider) as client:
        provider.stock = 0
        with pytest.raises(Problem, match="0 machines of this type are left") as refused:
            await client.ask(POOL, await client.look(POOL), 2, 0)
        assert refused.value.code == "capacity_unavailable"
        other = NodePool("b", "grpc", "b", (1, 1, 1, 0, 1), 0, 9, {"pool": "b"})
        with pytest.raises(Problem, match="there is no group b") as refused:
            await client.look(other)
        assert refused.value.code == "not_found"
        provider.hangs = True
        monkeypatch.setattr(remote, "CALL_WITHIN_S", 0.2)
        with pytest.raises(Problem, match="DEADLINE_EXCEEDED") as refused:
            await client.look(POOL)
        assert refused.value.code == "upstream_timeout"


async def test_only_a_known_client_is_served(tmp_path: Path) -> None:
    ours, theirs = Authority().write(tmp_path / "ours", "provider"), Authority().write(tmp_path / "theirs", "provider")
    async with provided(reference(), ours) as address, RemoteProvider.open(address, theirs, "provider") as client:
        with pytest.raises(Problem, match="UNAVAILABLE"):
            await client.look(POOL)


@pytest.mark.parametrize(
    ("told", "wrong"),
    [
        (Group(5_001), "5001 nodes asked for"),
        (Group(0, [Machine("")]), "without a name"),
        (Group(0, [Machine("a" * 254)]), "more than 253"),
        (Group(0, [Machine("a"), Machine("a")]), "twice"),
        (Group(0, [Machine("a", "n"), Machine("b", "n")]), "twice"),
    ],
)
def test_what_contradicts_itself_is_no_answer(told: Group, wrong: Any) -> None:
    with pytest.raises(Problem, match=wrong):
        limits.checked(POOL, told)


def test_reasons_are_bounded() -> None:
    told = limits.checked(POOL, Group(1, [Machine("a", "", "x" * 10_000)], "v", names=False))
    assert (len(told.machines[0].failed), told.version, told.names) == (limits.MOST_WHY_CHARS, "v", False)
