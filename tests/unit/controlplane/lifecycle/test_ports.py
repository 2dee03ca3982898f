"""Public ports: what the gateways are told, by every replica and after a restart."""

import asyncio
from dataclasses import replace

import jwt
import pytest

from controlplane.egress import EgressOptions
from controlplane.errors import Problem
from controlplane.lifecycle import Options, Subscription
from controlplane.lifecycle.service.owner_calls import MOST_PUBLIC_PORTS
from controlplane.model import Sandbox
from tests.support.fake_cluster import FakeCluster
from tests.support.virtual_time import VirtualClock
from tests.support.world import OWNER, SPEC, World, world

SANDBOX = Sandbox("sb-1", "alice", SPEC, 0, 1, "f")


async def told(feed: Subscription) -> tuple[list[int], list[list[str]], int]:
    """The public ports of the next delta, the scopes of their tokens, and the revision."""
    (route,) = (await feed.next()).delta.routes
    tokens = [jwt.decode(one.token, options={"verify_signature": False}) for one in route.public_ports]
    assert {claims["sub"] for claims in tokens} <= {route.sandbox_id}
    return [one.port for one in route.public_ports], [claims["scp"] for claims in tokens], route.ports_revision


def test_a_change_of_ports_is_a_new_revision_and_no_change_is_none() -> None:
    one = SANDBOX.with_port(8000, public=True, now_ms=100)
    two = one.with_port(80, public=True, now_ms=50)
    assert (one.public_ports, one.ports_revision, one.version) == ((8000,), 100, 1)
    assert (two.public_ports, two.ports_revision, two.version) == ((80, 8000), 101, 2)
    assert two.with_port(80, public=True, now_ms=200) is two
    assert two.with_port(81, public=False, now_ms=200) is two
    assert two.with_port(8000, public=False, now_ms=200).public_ports == (80,)


@pytest.mark.parametrize("ports", [(), (80,), (80, 8000)])
def test_the_fact_of_a_cluster_reads_back(ports: tuple[int, ...]) -> None:
    sandbox = replace(SANDBOX, public_ports=ports, ports_revision=7)
    assert SANDBOX.with_ports_fact(sandbox.ports_fact) == sandbox


@pytest.mark.parametrize("fact", ["", ":", "7", "7:80,", "7:,80", "x:80", "7:80 ", "7:8000000"])
def test_another_fact_says_nothing(fact: str) -> None:
    assert SANDBOX.with_ports_fact(fact) is SANDBOX


async def test_the_gateways_hear_of_a_port_and_that_it_was_taken_back(plane: World) -> None:
    sandbox = (await plane.create(OWNER, SPEC)).sandbox
    with plane.service.board.subscribe() as feed:
        await feed.next()
        opened = await plane.service.open_port(OWNER, sandbox.id, 8000, public=True)
        assert opened.public_ports == (8000,)
        ports, scopes, revision = await told(feed)
        assert (ports, scopes) == ([8000], [["port:8000"]])
        await plane.service.open_port(OWNER, sandbox.id, 8000, public=True)
        await plane.service.extend(OWNER, sandbox.id, 10_000_000)
        await plane.service.open_port(OWNER, sandbox.id, 8000, public=False)
        ports, _, later = await told(feed)
        assert (ports, later > revision) == ([], True)


async def test_an_older_word_about_ports_changes_no_route(plane: World) -> None:
    sandbox = (await plane.create(OWNER, SPEC)).sandbox
    await plane.service.open_port(OWNER, sandbox.id, 8000, public=True)
    version = plane.service.board.version
    plane.service.board.publish(sandbox)
    assert plane.service.board.version == version


async def test_ports_outlive_a_restart() -> None:
    for behind in (False, True):
        cluster = FakeCluster(annotates_behind=behind)
        async with world(cluster) as before:
            sandbox = (await before.create(OWNER, SPEC)).sandbox
            opened = await before.service.open_port(OWNER, sandbox.id, 8000, public=True)
            await asyncio.sleep(1)
        async with world(cluster) as after:
            adopted = await after.service.get(OWNER, sandbox.id)
            assert (adopted.public_ports, adopted.ports_revision) == ((8000,), opened.ports_revision)
            with after.service.board.subscribe() as feed:
                (route,) = (await feed.next()).snapshot.routes
                assert [one.port for one in route.public_ports] == [8000]


async def test_too_many_and_those_of_an_ended_sandbox_are_refused(plane: World) -> None:
    sandbox = (await plane.create(OWNER, SPEC)).sandbox
    for port in range(1, MOST_PUBLIC_PORTS + 1):
        await plane.service.open_port(OWNER, sandbox.id, port, public=True)
    with pytest.raises(Problem, match="no more are opened") as refused:
        await plane.service.open_port(OWNER, sandbox.id, 9000, public=True)
    assert refused.value.code == "quota_exceeded"
    await plane.service.open_port(OWNER, sandbox.id, 1, public=True)
    await plane.service.delete(OWNER, sandbox.id)
    for public in (True, False):
        with pytest.raises(Problem) as gone:
            await plane.service.open_port(OWNER, sandbox.id, 1, public=public)
        assert gone.value.code == "deleted"


async def test_a_port_token_outlives_any_extension(plane: World) -> None:
    sandbox = replace(SANDBOX, public_ports=(80,), ports_revision=VirtualClock().now_ms())
    token = plane.deps.key.port_token(sandbox, 80)
    assert token.expires_at_ms - sandbox.ports_revision > 365 * 24 * 3_600_000


async def test_a_port_of_the_platform_is_never_public() -> None:
    async with world(options=Options(egress=EgressOptions(3128))) as plane:
        sandbox = (await plane.create(OWNER, SPEC)).sandbox
        for port in (7070, 3128, 53):
            with pytest.raises(Problem, match="the platform's own") as refused:
                await plane.service.open_port(OWNER, sandbox.id, port, public=True)
            assert refused.value.code == "permission_denied"
            # One of an earlier version, or of before egress was installed, is taken back.
            assert not (await plane.service.open_port(OWNER, sandbox.id, port, public=False)).public_ports
        assert (await plane.service.open_port(OWNER, sandbox.id, 8000, public=True)).public_ports == (8000,)
