"""Quotas and preflights through the SDK and the command line."""

from __future__ import annotations

import json
from typing import Any

import pytest
from typer.testing import CliRunner

from rollbox import Client, QuotaLimits, sync
from rollbox.cli.app import app
from rollbox.errors import CapacityUnavailable, InvalidArgument, QuotaExceeded
from rollbox.quota import NodesToCome, limits_body
from tests.support.gateway_fake import FakeGateway

PLACE = {"position": 1, "idempotency_key": "k", "labels": {"sample": "7"}, "waits_for": "sandboxes"}
PLACE |= {"since_ms": 1, "until_ms": 2, "estimate_ms": 4_000}
OVER_QUOTA = {"code": "quota_exceeded", "detail": "this needs 960", "hint": "raise it", "for_good": True}
NO_ROOM = {"code": "capacity_unavailable", "detail": "the nodes have room for 700", "hint": "add nodes"}
SHORT = {"fits": False, "may_have": 512, "may_have_alone": 512, "warm": 12, "estimate_ms": 40_000}


def run(*words: str) -> Any:
    return CliRunner().invoke(app, list(words))


async def test_ones_own_quota_tells_use_and_places(fake: FakeGateway, client: Client) -> None:
    fake.quotas.declared["*"] = {"sandboxes": 4}
    fake.quotas.used = {"sandboxes": 5}
    fake.quotas.queue = [PLACE]
    quota = await client.quota()
    assert (quota.owner, quota.declared_for, quota.waiting, quota.max_sandboxes) == ("me", "*", 1, 100)
    assert (quota.free("sandboxes"), quota.free("gpu")) == (0, None)
    assert (quota.queue[0].position, quota.queue[0].estimate_ms) == (1, 4_000)


async def test_operators_change_list_and_remove(fake: FakeGateway, client: Client) -> None:
    await client.set_quota("bob", sandboxes=4, cpu=1.5, memory="1Gi")
    quota = await client.set_quota("bob", sandboxes=None, gpu=2)
    assert quota.limits == {
        "sandboxes": None,
        "cpu_millicores": 1500,
        "memory_bytes": 1 << 30,
        "gpu": 2,
        "starting": None,
    }
    assert await client.quotas() == [quota]
    assert await client.quota("bob") == quota
    assert (await client.remove_quota("bob")).declared_for is None
    await client.set_quota("*", starting=8)
    assert (await client.quota("bob")).declared_for == "*"


@pytest.mark.parametrize(
    "limits", [{}, {"sandboxes": 0}, {"cpu": "much"}, {"memory": -1}, {"gpu": 1.5}, {"starting": True}]
)
async def test_nonsense_is_refused_before_anything_is_sent(
    fake: FakeGateway, client: Client, limits: QuotaLimits
) -> None:
    with pytest.raises(InvalidArgument):
        await client.set_quota("bob", **limits)
    assert fake.requests == []


@pytest.mark.parametrize("owner", ["", "a/b", " "])
async def test_a_name_that_is_none_is_refused(fake: FakeGateway, client: Client, owner: str) -> None:
    with pytest.raises(InvalidArgument):
        await client.quota(owner)
    with pytest.raises(InvalidArgument):
        await client.remove_quota(owner)


def test_a_body_has_what_was_given() -> None:
    assert limits_body({"cpu": "500m", "memory": None}) == {"cpu_millicores": 500, "memory_bytes": None}


async def test_a_preflight_asks_as_a_create_would(fake: FakeGateway, client: Client) -> None:
    told = await client.preflight("python:3.12", 16, gpu=1, env={"A": "b"})
    assert told.fits
    told.require()
    (asked,) = fake.quotas.asked
    assert (asked["count"], asked["sandbox"]["gpu"], asked["sandbox"]["env"]) == (16, 1, {"A": "b"})
    with pytest.raises(InvalidArgument):
        await client.preflight("python:3.12", 0)


async def test_a_preflight_tells_which_nodes_may_come(fake: FakeGateway, client: Client) -> None:
    told = {"pool": "general", "nodes": 4, "sandboxes": 100, "within_s": 600, "why": "", "of": "a later version"}
    fake.quotas.foresight = {**SHORT, "blockers": [NO_ROOM], "nodes_may_come": [told]}
    found = await client.preflight("python:3.12", 960)
    assert found.nodes_may_come == [NodesToCome("general", 4, 100, 600)]
    assert found.to_json()["nodes_may_come"][0]["sandboxes"] == 100


async def test_what_is_in_the_way_is_raised_as_a_create_would_raise_it(fake: FakeGateway, client: Client) -> None:
    fake.quotas.foresight = {**SHORT, "blockers": [OVER_QUOTA, NO_ROOM]}
    told = await client.preflight("python:3.12", 960)
    with pytest.raises(QuotaExceeded, match="this needs 960") as caught:
        told.require()
    assert (caught.value.hint, caught.value.details["for_good"]) == ("raise it", "true")
    fake.quotas.foresight = {**SHORT, "blockers": [NO_ROOM]}
    with pytest.raises(CapacityUnavailable):
        (await client.preflight("python:3.12", 960)).require()
    assert str(told).splitlines() == [
        "960 wanted: 512 may run together now (12 of them are warm), ready in about 40 s; 512 when nothing else runs",
        "quota_exceeded: this needs 960",
        "capacity_unavailable: the nodes have room for 700",
    ]


def test_the_sync_client_does_the_same(apart: FakeGateway) -> None:
    with sync.Client() as client:
        assert client.set_quota("bob", gpu=1).limits["gpu"] == 1
        assert client.quota("bob") == client.quotas()[0]
        assert client.preflight("a", 2).fits
        assert client.remove_quota("bob").declared_for is None


@pytest.mark.parametrize("wrong", [(), ("--sandboxes", "0"), ("--gpu", "many")])
def test_the_command_line_refuses_what_is_no_limit(apart: FakeGateway, wrong: tuple[str, ...]) -> None:
    assert run("quota", "set", "bob", *wrong).exit_code == 2
    assert apart.quotas.declared == {}


@pytest.mark.parametrize(("blocker", "exit_code"), [(OVER_QUOTA, 2), (NO_ROOM, 4)])
def test_the_command_line_tells_by_its_exit_code_whether_a_run_fits(
    apart: FakeGateway, blocker: dict[str, Any], exit_code: int
) -> None:
    assert run("preflight", "python:3.12", "--count", "16").exit_code == 0
    apart.quotas.foresight = {**SHORT, "blockers": [blocker]}
    told = run("preflight", "python:3.12", "-n", "960", "--cpu", "0.5:2")
    assert told.exit_code == exit_code
    assert "960 wanted: 512 may run together now" in told.stdout
    assert f"hint: {blocker['hint']}" in told.stderr
    assert json.loads(run("preflight", "python:3.12", "--json").stdout)["may_have"] == 512
