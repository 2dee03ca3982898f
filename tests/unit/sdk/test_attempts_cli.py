"""`rollbox egress log` and `rollbox why`: what was not reached, beside the commands that ran at that time."""

from __future__ import annotations

import json

from rollbox import EgressAttempt
from rollbox.cli.attempts import beside, table
from rollbox.process import ExecSummary
from tests.support.gateway_fake import FakeGateway, Fault
from tests.unit.sdk.test_cli import made, rollbox
from tests.unit.sdk.test_egress import ATTEMPT


def attempt(at_ms: int, verdict: str = "denied_name") -> EgressAttempt:
    return EgressAttempt(at_ms, "github.com", 443, verdict)


def command(exec_id: str, began_ms: int, ended_ms: int | None, *, running: bool = False) -> ExecSummary:
    return ExecSummary(exec_id, ["run", exec_id], 1, began_ms, running, ended_at_ms=ended_ms)


def beside_of(at_ms: int, *commands: ExecSummary) -> list[str]:
    (met,) = beside([attempt(at_ms)], commands)
    assert met.commands is not None
    return [one.exec_id for one in met.commands]


def test_only_commands_that_ran_then_are_beside_an_attempt_oldest_first() -> None:
    commands = [
        command("later", 20_000, 21_000),
        command("runs", 9_000, None, running=True),
        command("then", 8_000, 10_500),
        command("before", 1_000, 2_000),
    ]
    assert beside_of(10_000, *commands) == ["then", "runs"]
    assert beside_of(1_500, *commands) == ["before"]
    # What a command has left behind runs on without it.
    assert beside_of(5_000, *commands) == []


def test_clocks_of_two_machines_may_differ_and_a_second_is_told_as_one() -> None:
    assert beside_of(10_000, command("a", 10_900, 12_000), command("b", 7_000, 9_100)) == ["b", "a"]
    assert beside_of(10_000, command("a", 11_600, 12_000), command("b", 7_000, 8_400)) == []


def test_of_an_older_sidecar_whatever_began_before_may_have_run() -> None:
    assert beside_of(10_000, command("old", 1_000, None), command("new", 20_000, None)) == ["old"]


def test_many_and_long_commands_are_cut_and_none_is_said() -> None:
    long = ExecSummary("x", ["sh", "-c", "a  b\n" + "c" * 200], 1, 1, False, ended_at_ms=2)
    columns, rows = table(beside([attempt(1)], [*(command(name, 1, 2) for name in "dcba"), long]))
    assert columns[-1] == "while these ran"
    assert rows[0][-1] == "run b (b), run c (c), run d (d) and 2 more"
    assert table(beside([attempt(1)], [long]))[1][0][-1] == f"sh -c a b {'c' * 49}… (x)"
    assert table(beside([attempt(1)], []))[1][0][-1] == "none that is known"
    assert "while these ran" not in table(beside([attempt(1)], None))[0]


def test_log_and_why_name_the_command_beside_what_it_did_not_reach(apart: FakeGateway) -> None:
    sandbox_id = made(apart)
    rollbox("exec", sandbox_id, "--", "curl", "https://github.com")
    reached = {**ATTEMPT, "host": "pypi.org", "verdict": "allowed", "at_ms": 2}
    apart.egress.attempts = [reached, {**ATTEMPT, "at_ms": 2}]
    for words in (("egress", "log", sandbox_id, "--denied"), ("why", sandbox_id)):
        shown = rollbox(*words)
        assert shown.exit_code == 0, shown.stderr
        (line,) = [one for one in shown.stdout.splitlines() if "github.com:443 x2" in one]
        assert "swe-eval/github" in line
        assert "curl https://github.com (" in line
        assert "pypi.org" not in shown.stdout
    (told,) = json.loads(rollbox("egress", "log", sandbox_id, "--denied", "--json").stdout)
    assert [one["argv"] for one in told["commands"]] == [["curl", "https://github.com"]]
    assert json.loads(rollbox("why", sandbox_id, "--json").stdout)["refused"] == [told]


def test_after_the_end_attempts_are_told_without_commands(apart: FakeGateway) -> None:
    sandbox_id = made(apart)
    rollbox("exec", sandbox_id, "--", "curl", "https://github.com")
    apart.egress.attempts = [{**ATTEMPT, "at_ms": 2}]
    assert rollbox("delete", sandbox_id).exit_code == 0
    for words in (("egress", "log", sandbox_id), ("why", sandbox_id)):
        shown = rollbox(*words).stdout
        assert "github.com:443 x2" in shown
        assert "while these ran" not in shown
    assert json.loads(rollbox("why", sandbox_id, "--json").stdout)["refused"][0]["commands"] is None


def test_why_shows_the_newest_and_where_all_of_them_are(apart: FakeGateway) -> None:
    sandbox_id = made(apart)
    apart.egress.attempts = [{**ATTEMPT, "at_ms": at, "host": f"h{at}.test"} for at in range(12)]
    shown = rollbox("why", sandbox_id).stdout
    assert f"all 12: rollbox egress log {sandbox_id} --denied" in shown
    assert [f"h{at}.test" in shown for at in (0, 1, 2, 11)] == [False, False, True, True]


def test_why_says_nothing_of_the_network_where_there_is_no_egress(apart: FakeGateway) -> None:
    sandbox_id = made(apart)
    apart.egress.attempts = [ATTEMPT]
    apart.fail("egress", Fault("unsupported"))
    shown = rollbox("why", sandbox_id)
    assert (shown.exit_code, "github.com" in shown.stdout) == (0, False), shown.stderr
    assert "github.com" in rollbox("why", sandbox_id).stdout
