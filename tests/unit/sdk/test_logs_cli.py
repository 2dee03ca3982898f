"""`rollbox logs`: the platform's words and the commands of a sandbox, in the order of time."""

from __future__ import annotations

import re

import pytest
from typer.testing import CliRunner, Result

from rollbox import Client, Moment, Timeline
from rollbox.cli import app, logs
from rollbox.cli.logs import entries
from rollbox.process import ExecSummary
from tests.support.gateway_fake import FakeGateway
from tests.support.screens import assert_screen


def rollbox(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


def ran(fake: FakeGateway, *commands: dict[str, object]) -> str:
    sandbox_id = rollbox("create", "python").stdout.strip()
    for number, told in enumerate(commands):
        fake.results[f"step {number}"] = told
        rollbox("exec", sandbox_id, "--", "step", str(number))
    return sandbox_id


def without_ids(text: str) -> str:
    return re.sub(r"[0-9a-f]{32}", "EXEC", text)


def test_both_are_in_the_order_of_time() -> None:
    timeline = Timeline(
        "sb", "running", moments=(Moment(10, 0, "requested", "r", "asked for"), Moment(30, 20, "running", "r", "ready"))
    )
    commands = [ExecSummary("b", ["late"], 2, 50, True), ExecSummary("a", ["early"], 1, 40, False, "exited", 0)]
    told = [(one.at_ms, one.by, one.text.split("  ")[0]) for one in entries(timeline, commands)]
    assert told == [
        (10, "platform", "requested: asked for"),
        (30, "platform", "running: ready"),
        (40, "command", "exited 0: early"),
        (50, "command", "runs: late"),
    ]


def test_screen_of_logs(apart: FakeGateway) -> None:
    sandbox_id = ran(apart, {"stdout": "one\ntwo\n"}, {"exit_code": 3, "stderr": "bad \x1b]0;owned\x07\n"})
    shown = rollbox("logs", sandbox_id, "--output", "1000")
    assert (shown.exit_code, shown.stderr) == (0, "")
    assert_screen("logs.txt", without_ids(shown.stdout))
    assert "one" not in rollbox("logs", sandbox_id).stdout


def test_only_the_last_of_an_output_is_shown(apart: FakeGateway) -> None:
    sandbox_id = ran(apart, {"stdout": "a" * 50 + "end"})
    assert "    stdout  end" in rollbox("logs", sandbox_id, "-o", "3").stdout
    assert rollbox("logs", sandbox_id, "-o", "99999999").exit_code == 2


def test_follow_goes_on_until_the_end(apart: FakeGateway) -> None:
    sandbox_id = ran(apart, {})
    apart.end(sandbox_id)
    shown = rollbox("logs", sandbox_id, "--follow")
    assert (shown.exit_code, shown.stderr) == (0, "")
    assert "ending: The sandbox was deleted" in shown.stdout
    told = rollbox("logs", sandbox_id)
    assert "not known any more" in told.stderr


def test_an_unknown_sandbox_is_refused(apart: FakeGateway) -> None:
    ran(apart)
    refused = rollbox("logs", "sb-11")
    assert (refused.exit_code, "Did you mean sb-1?" in refused.stderr) == (2, True)


def test_follow_prints_what_is_new_and_nothing_twice(apart: FakeGateway, monkeypatch: pytest.MonkeyPatch) -> None:
    sandbox_id, looks, plain = ran(apart, {}), [0], logs._commands

    async def looked(client: Client, timeline: Timeline) -> object:
        found = await plain(client, timeline)
        looks[0] += 1
        if looks[0] == 2:
            await (await client.connect(sandbox_id)).spawn(["step", "0"])
        if looks[0] == 3:
            apart.end(sandbox_id)
        return found

    monkeypatch.setattr("rollbox.cli.logs._commands", looked)
    monkeypatch.setattr("rollbox.cli.logs._FOLLOW_S", 0.0)
    lines = rollbox("logs", sandbox_id, "--follow").stdout.splitlines()
    assert len(lines) == len(set(lines))
    assert [line.split()[2] for line in lines].count("command") >= 2
    assert "ending" in lines[-1]
