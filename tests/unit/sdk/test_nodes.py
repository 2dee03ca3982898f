"""Nodes and their drains, through the SDK and the command line."""

from __future__ import annotations

import json
from typing import Any

import pytest
from typer.testing import CliRunner

from rollbox import Client
from rollbox.cli.app import app
from rollbox.errors import InvalidArgument
from tests.support.gateway_fake import FakeGateway

COUNTS = {"claimed": 2, "warm": 1, "starting": 0}
NODE = {"name": "a", "state": "ready", "max_pods": 256, **COUNTS, "why": "", "drain": None}


def run(*words: str) -> Any:
    return CliRunner().invoke(app, ["node", *words])


async def test_a_drain_is_asked_for_and_taken_back(fake: FakeGateway, client: Client) -> None:
    fake.quotas.nodes = {"a": {**NODE, "later": 1}}
    (node,) = await client.nodes()
    assert (node.name, node.sandboxes, node.drain) == ("a", 3, None)
    drained = await client.drain_node("a", 1.5)
    assert drained.drain is not None
    assert (drained.state, drained.drain.by, drained.to_json()["drain"]["until_ms"]) == ("draining", "ops", 2)
    assert (await client.undrain_node("a")).drain is None
    await client.drain_node("a")
    await client.drain_node("a", 0)
    asked = [body and body["within_ms"] for _, body in fake.quotas.drains]
    assert asked == [1500, None, None, 0]


@pytest.mark.parametrize("deadline", [-1, float("nan")])
async def test_a_deadline_in_the_past_is_refused_before_any_request(
    fake: FakeGateway, client: Client, deadline: float
) -> None:
    with pytest.raises(InvalidArgument, match="deadline"):
        await client.drain_node("a", deadline)
    with pytest.raises(InvalidArgument, match="node"):
        await client.drain_node("a/../b")
    assert fake.quotas.drains == []


def test_the_command_lists_drains_and_waits(apart: FakeGateway, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rollbox.cli.node._LOOK_EVERY_S", 0.01)
    apart.quotas.nodes = {"a": {**NODE, "warm": 0}, "b": {**NODE, "name": "b", "max_pods": None, "why": "it is odd"}}
    listed = run("list")
    assert listed.exit_code == 0
    for part in ("2 of 256", "it is odd", "drains until"):
        assert part in listed.stdout
    told = run("drain", "a", "--deadline", "60", "--wait")
    assert told.exit_code == 0, told.output
    assert "0 of 256" in told.stdout
    assert "is drained by an operator (ops)" in told.stdout or "(ops)" in told.stdout
    assert json.loads(run("undrain", "a", "--json").stdout)["state"] == "ready"
    assert json.loads(run("show", "a", "--json").stdout)["name"] == "a"
    assert json.loads(run("list", "--json").stdout)[1]["name"] == "b"


async def test_a_sandbox_hears_of_a_drain_with_the_answers_to_its_commands(fake: FakeGateway, client: Client) -> None:
    sandbox, heard = await client.create("python"), list[float]()
    sandbox.on_draining(heard.append)
    await sandbox.exec("true")
    assert (sandbox.draining_at, heard) == (None, [])
    fake.draining_at_ms = 5_000
    await sandbox.exec("true")
    await (await sandbox.spawn("true")).kill()
    assert (sandbox.draining_at, sandbox.record.draining_at_ms, heard) == (5.0, 5_000, [5.0])
    fake.draining_at_ms = 9_000
    await sandbox.exec("true")
    fake.draining_at_ms = None
    await sandbox.exec("true")
    assert (sandbox.draining_at, heard) == (None, [5.0, 9.0])


async def test_what_a_record_says_of_a_drain_no_silent_gateway_takes_back(fake: FakeGateway, client: Client) -> None:
    sandbox, heard = await client.create("python"), list[float]()
    sandbox.on_draining(heard.append)
    fake.sandboxes[sandbox.id]["draining_at_ms"] = 7_000
    assert (await sandbox.refresh()).draining_at_ms == 7_000
    await sandbox.exec("true")
    await sandbox.refresh()
    assert (sandbox.draining_at, heard) == (7.0, [7.0])
    sandbox.on_draining(None)
    fake.sandboxes[sandbox.id]["draining_at_ms"] = None
    await sandbox.refresh()
    assert (sandbox.draining_at, heard) == (None, [7.0])
