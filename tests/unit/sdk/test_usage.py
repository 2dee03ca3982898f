"""Usage of a sandbox: in a program and on the command line."""

import json
from dataclasses import replace
from typing import Literal

import pytest
from typer.testing import CliRunner, Result

from rollbox import Client, Sandbox, Usage
from rollbox.cli import app
from rollbox.cli.top import _Watched
from tests.support.gateway_fake import FakeGateway, Fault

USED = Usage(1234.5, 3 << 20, 2 << 30, 5 << 30, None, 2, 512, "node", 0)


async def test_usage_is_told_and_fields_of_later_versions_are_left_out(client: Client, fake: FakeGateway) -> None:
    sandbox = await client.create("python")
    fake.fail("usage", Fault("upstream_timeout"))
    assert await sandbox.usage() == USED


@pytest.mark.parametrize("by", ["node", "sandbox"])
async def test_who_has_counted_the_cpu_time_is_told(
    client: Client, fake: FakeGateway, by: Literal["node", "sandbox"]
) -> None:
    fake.use = {"cpu_counted_by": by}
    assert await (await client.create("python")).usage() == replace(USED, cpu_counted_by=by)


async def test_what_files_in_memory_take_is_told(client: Client, fake: FakeGateway) -> None:
    sandbox = await client.create("python")
    for told in (0, 5 << 20):
        fake.use = {"memory_files_bytes": told}
        assert await sandbox.usage() == replace(USED, memory_files_bytes=told)


def test_top_shows_what_of_the_memory_is_files_where_there_are_some(apart: FakeGateway) -> None:
    CliRunner().invoke(app, ["create", "python"])
    for told, shown in ((0, "3Mi / 2Gi  "), (1 << 20, "3Mi / 2Gi (1Mi of it files)")):
        apart.use = {"memory_files_bytes": told}
        assert shown in rollbox_top("sb-1").stdout
        used = json.loads(rollbox_top("sb-1", "--json").stdout)["sandboxes"]["sb-1"]
        assert used["memory_files_bytes"] == told


def rollbox_top(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["top", *arguments])


def test_top_marks_cpu_time_that_no_node_has_counted(apart: FakeGateway) -> None:
    CliRunner().invoke(app, ["create", "python"])
    apart.use = {"cpu_counted_by": "sandbox"}
    shown = rollbox_top("sb-1").stdout
    assert shown.splitlines()[1].split()[:3] == ["sb-1", "~0%", "~1.2s"]
    assert "what waited for a processor is in it" in shown
    apart.use = {"cpu_counted_by": "node"}
    assert "~" not in rollbox_top("sb-1").stdout


async def test_top_knows_no_share_between_two_counts(client: Client) -> None:
    watched = _Watched(client, ["sb-1"], {})
    by_kernel = watched.row("sb-1", replace(USED, cpu_ms=8e3, cpu_counted_by="sandbox"))
    by_node = watched.row("sb-1", replace(USED, cpu_ms=2e3, cpu_counted_by="node"))
    assert [row[1:3] for row in (by_kernel, by_node)] == [("", "~8.0s"), ("", "2.0s")]


def test_top_prints_json_once_and_tells_what_could_not_be_asked(apart: FakeGateway) -> None:
    CliRunner().invoke(app, ["create", "python"])
    result = CliRunner().invoke(app, ["top", "sb-1", "--json"])
    assert json.loads(result.stdout) == {"sandboxes": {"sb-1": USED.to_json()}, "failed": {}}
    told = json.loads(rollbox_top("sb-1", "sb-9", "--json").stdout)
    assert [*told["sandboxes"]] == ["sb-1"]
    assert {name: one["code"] for name, one in told["failed"].items()} == {"sb-9": "sandbox_not_found"}
    result = CliRunner().invoke(app, ["top", "sb-1", "sb-9"])
    assert result.exit_code == 2
    assert "sandbox_not_found" in result.stdout


def test_top_asks_a_few_sandboxes_only_for_people_and_tells_pools_and_tails(apart: FakeGateway) -> None:
    CliRunner().invoke(app, ["pool", "set", "py", "python", "--warm", "2"])
    for _ in range(3):
        CliRunner().invoke(app, ["create", "python"])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("rollbox.cli.top._MOST_ASKED", 2)
        shown = rollbox_top().stdout
        told = json.loads(rollbox_top("--json").stdout)
    assert "the 2 youngest of 3 that run" in shown
    assert shown.splitlines()[4].split()[:2] == ["pool", "ready"]
    assert (told["states"], len(told["sandboxes"]), told["pools"][0]["name"]) == ({"running": 3}, 3, "py")
    assert told["cold_starts_ms"]["count"] == 3


def test_top_goes_on_without_the_pools(apart: FakeGateway) -> None:
    CliRunner().invoke(app, ["create", "python"])
    apart.fail("pool", *[Fault("permission_denied")] * 3)
    result = rollbox_top("--json")
    told = json.loads(result.stdout)
    assert (result.exit_code, told["pools"], [*told["sandboxes"]]) == (0, None, ["sb-1"])
    assert (told["pools_failed"]["code"], told["failed"]) == ("permission_denied", {})
    result = rollbox_top()
    assert (result.exit_code, "permission_denied" in result.stdout, "sb-1" in result.stdout) == (0, True, True)


def test_top_asks_some_at_a_time_whatever_their_number(apart: FakeGateway, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(5):
        CliRunner().invoke(app, ["create", "python"])
    asked, most, real = 0, 0, Sandbox.usage

    async def usage(sandbox: Sandbox) -> Usage:
        nonlocal asked, most
        asked += 1
        most = max(most, asked)
        try:
            return await real(sandbox)
        finally:
            asked -= 1

    monkeypatch.setattr(Sandbox, "usage", usage)
    monkeypatch.setattr("rollbox.cli.top._ASKED_AT_ONCE", 2)
    assert len(json.loads(rollbox_top("--json").stdout)["sandboxes"]) == 5
    assert most == 2
