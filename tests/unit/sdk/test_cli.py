"""The command line: what goes to stdout, what to stderr, and the exit codes."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner, Result

import rollbox as sdk
from rollbox.cli import app
from rollbox.cli import up as up_module
from rollbox.cli.options import seconds
from rollbox.cli.output import plain
from rollbox.errors import BY_CODE
from tests.support.eventually import LIMIT_S, eventually_true
from tests.support.gateway_fake import FakeGateway, Fault

# The command line, with a long time limit for the cleanup after a cancelled call.
UNHURRIED = f"from rollbox import cli, gateway; gateway._CLEANUP_LIMIT_S = {LIMIT_S}; cli.main()"


def rollbox(*arguments: str, stdin: bytes = b"") -> Result:
    return CliRunner().invoke(app, list(arguments), input=stdin)


def made(fake: FakeGateway, *labels: str) -> str:
    options = [part for label in labels for part in ("--label", label)]
    return rollbox("create", "python", *options).stdout.strip()


def test_create_prints_the_id_and_leaves_it_running(apart: FakeGateway) -> None:
    result = rollbox("create", "python", "--cpu", "1:2", "--memory", "1Gi", "--env", "A=b=c", "--label", "run=r")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "sb-1\n", "")
    assert apart.sandboxes["sb-1"]["state"] == "running"
    assert apart.bodies[0]["cpu_millicores"] == {"request": 1000, "limit": 2000}
    assert apart.bodies[0]["env"] == {"A": "b=c"}


@pytest.mark.parametrize(
    ("given", "code"),
    [
        ({"end": "deadline", "exit_code": None}, 124),
        ({"end": "oom_killed", "exit_code": None}, 137),
        ({"end": "cancelled", "exit_code": None}, 130),
        ({"end": "signalled", "exit_code": None, "signal": 15}, 143),
        ({"exit_code": 0}, 0),
    ],
)
def test_exec_exits_as_a_shell_would(apart: FakeGateway, given: dict[str, Any], code: int) -> None:
    sandbox_id = made(apart)
    apart.results["x"] = given
    assert rollbox("exec", sandbox_id, "--", "x").exit_code == code
    told = rollbox("exec", sandbox_id, "--json", "--", "x")
    assert told.exit_code == code
    assert json.loads(told.stdout)["end"] == given.get("end", "exited")


def test_exec_tells_lost_output_on_stderr(apart: FakeGateway) -> None:
    sandbox_id = made(apart)
    apart.results["x"] = {"stdout": "end", "stdout_truncated": True, "stdout_total_bytes": 100}
    result = rollbox("exec", sandbox_id, "--", "x")
    assert (result.stdout, result.stderr) == ("end", "stdout: 97 bytes from byte 0 on are lost\n")


def test_ps_says_of_one_that_does_not_answer_for_how_long(apart: FakeGateway) -> None:
    silent, answering = made(apart), made(apart)
    apart.sandboxes[silent]["silent_since_ms"] = time.time() * 1000 - 600_000
    told = {one["id"]: one["silent_since_ms"] for one in json.loads(rollbox("ps", "--json").stdout)}
    assert (told[silent] is None, told[answering]) == (False, None)
    assert rollbox("ps").stdout.count("no answer for 10m") == 1


def test_a_label_that_looks_like_markup_is_shown_as_it_is(apart: FakeGateway) -> None:
    made(apart, "run=[/x][red]")
    assert "run=[/x][red]" in rollbox("ps").stdout


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_kills_the_command_on_the_server(apart: FakeGateway, number: signal.Signals, code: int) -> None:
    sandbox_id = made(apart)
    command = [sys.executable, "-c", UNHURRIED, "exec", sandbox_id, "--", "hold"]
    source = str(Path(sdk.__file__).parents[1])
    with subprocess.Popen(command, env={**os.environ, "PYTHONPATH": source}, stderr=subprocess.PIPE) as process:
        assert apart.held.wait(LIMIT_S)
        process.send_signal(number)
        _, stderr = process.communicate(timeout=LIMIT_S)
    assert process.returncode == code
    assert b"interrupted" in stderr
    assert all(event.is_set() for event in apart.cancelled.values())


def test_delete_by_label_and_id(apart: FakeGateway) -> None:
    first, second, third = made(apart, "run=a"), made(apart, "run=a"), made(apart)
    assert rollbox("delete", "--label", "run=a").stdout.split() == [first, second]
    told = rollbox("delete", third, "nobody", "--json")
    assert json.loads(told.stdout) == {
        "deleted": [third],
        "failed": [{"id": "nobody", "code": "sandbox_not_found", "detail": "there is no sandbox nobody"}],
    }
    assert told.exit_code == 2
    assert rollbox("delete").exit_code == 2


@pytest.mark.parametrize(
    ("code", "exit_code"),
    [("quota_exceeded", 2), ("deleted", 2), ("disk_full", 3), ("capacity_unavailable", 4), ("internal", 5)],
)
def test_exit_codes_tell_whose_fault_it_is(apart: FakeGateway, code: str, exit_code: int) -> None:
    apart.fail("list", *[Fault(code)] * 3)
    result = rollbox("ps")
    assert (result.exit_code, result.stdout) == (exit_code, "")
    assert f"told to fail with {code}" in result.stderr
    assert f"code: {code}" in result.stderr
    assert ("hint: " in result.stderr) == bool(BY_CODE[code].hint)
    assert "request: req-1" in result.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ("create", "python", "--cpu", "1:2:3"),
        ("create", "python", "--memory", "lots"),
        ("create", "python", "--label", "novalue"),
        ("create",),
        ("exec", "sb-1"),
        ("exec", "sb-1", "--stdin", "file", "--", "cat"),
        ("kill", "sb-1", "e-1", "-s", "NONE"),
        ("nonsense",),
    ],
)
def test_usage_errors_exit_with_2(apart: FakeGateway, arguments: tuple[str, ...]) -> None:
    assert rollbox(*arguments).exit_code == 2
    assert apart.requests == []


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("exec sb-1 --umask 9 -- x", "umask"),
        ("exec sb-1 --umask 1777 -- x", "umask"),
        ("exec sb-1 --keep middle -- x", "keep"),
        ("exec sb-1 --max-output-bytes 0 -- x", "max_output_bytes"),
        ("exec -t sb-1 --keep head -- x", "--tty cannot go together"),
        ("expose sb-1 70000", "1 to 65535"),
    ],
)
def test_values_that_are_none_exit_with_2(apart: FakeGateway, line: str, said: str) -> None:
    made(apart)
    refused = rollbox(*line.split())
    assert (refused.exit_code, said in refused.stderr, apart.runs) == (2, True, [])


def test_up_becomes_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[list[str]] = []
    monkeypatch.setattr(os, "execv", lambda _, arguments: started.append(arguments))
    monkeypatch.setattr(up_module, "_MODULE", "json")
    options = ["--listen", "127.0.0.1:1", "--state-dir", "/s", "--starts-in-flight", "2", "--keep", "--json"]
    assert rollbox("up", *options).exit_code == 0
    assert started == [[sys.executable, "-m", "json.embedded", *options]]


def test_up_without_the_server_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(up_module, "_MODULE", "no_such_package")
    result = rollbox("up")
    assert result.exit_code == 2
    assert "no_such_package" in result.stderr


def test_version_and_help() -> None:
    assert rollbox("--version").stdout.strip() == "0.1.0"
    assert "doctor" in rollbox("--help").stdout


def test_what_is_not_text_survives_json(apart: FakeGateway) -> None:
    sandbox_id = made(apart)
    apart.results["x"] = {"stdout": "/wA=", "stdout_encoding": "base64"}
    told = json.loads(rollbox("exec", sandbox_id, "--json", "--", "x").stdout)
    assert (told["stdout"], told["stdout_encoding"], told["stderr_encoding"]) == ("/wA=", "base64", "utf-8")


def test_a_table_has_one_line_a_row_and_nothing_after_it(apart: FakeGateway) -> None:
    made(apart, "run=" + "x" * 200)
    head, row = rollbox("ps").stdout.splitlines()
    assert head.split() == ["id", "state", "image", "age", "expires", "in", "labels"]
    assert row.startswith("sb-1  running")
    assert row.endswith("run=" + "x" * 200)
    assert head == head.rstrip()


def test_create_passes_every_option_on(apart: FakeGateway) -> None:
    options = ["--pids", "64", "--cwd", "/usr", "--user", "nobody", "--start-timeout", "5"]
    options += ["--disk", "4Gi", "--gpu", "2", "--node-selector", "zone=a", "--node-selector", "disk=ssd"]
    assert rollbox("create", "python", *options).exit_code == 0
    body = apart.bodies[0]
    assert (body["pids_limit"], body["cwd"], body["user"], body["start_timeout_ms"]) == (64, "/usr", "nobody", 5000)
    assert (body["disk_bytes"], body["gpu"]) == (4 << 30, 2)
    assert body["node_selector"] == {"zone": "a", "disk": "ssd"}


def test_ctrl_c_while_the_standard_input_is_awaited_ends_at_once(apart: FakeGateway) -> None:
    command = [sys.executable, "-m", "rollbox", "exec", made(apart), "--json", "--stdin", "-", "--", "cat"]
    source = str(Path(sdk.__file__).parents[1])
    pipe = subprocess.PIPE
    environment = {**os.environ, "PYTHONPATH": source}
    with subprocess.Popen(command, env=environment, stdin=pipe, stdout=pipe, stderr=pipe) as process:
        # The spawn, and the exec that waits for the end.
        eventually_true(lambda: apart.count("POST", "/exec") == 2 or process.poll() is not None)
        process.send_signal(signal.SIGINT)
        assert process.wait(LIMIT_S) == 130
        assert process.stderr is not None
        assert b"interrupted" in process.stderr.read()
    (cat,) = apart.processes.execs.values()
    assert (cat.result or {})["end"] == "cancelled"


@pytest.mark.parametrize(
    ("text", "expected"),
    [("90", 90), ("1.5", 1.5), ("90s", 90), ("5m", 300), ("1h30m", 5400), ("250ms", 0.25), ("1d", 86400)],
)
def test_times_are_seconds_or_have_units(text: str, expected: float) -> None:
    assert seconds(text) == expected


@pytest.mark.parametrize("text", ["", "5x", "m", "1h 30m", "five", "5 m", "nan", "inf", "-inf"])
def test_what_is_no_time_is_refused_with_the_forms_there_are(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="1h30m"):
        seconds(text)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("top --interval 50ms", "'50ms' is not at least 0.1 s"),
        ("bench python --seconds 11m", "'11m' is not from 1 s to 600 s"),
        ("bench python --seconds soon", "'soon' is not a time"),
    ],
)
def test_every_option_for_a_time_takes_units_within_its_bounds(apart: FakeGateway, line: str, said: str) -> None:
    refused = rollbox(*line.split())
    assert (refused.exit_code, said in " ".join(refused.stderr.split())) == (2, True)
    assert not apart.sandboxes


def test_a_time_with_a_unit_is_taken_where_seconds_were(apart: FakeGateway) -> None:
    assert rollbox("top", "--interval", "500ms", "--json").exit_code == 0
    assert apart.url


@pytest.mark.parametrize(
    ("number", "text"),
    [(1 << 20, "1048576"), (131072.0, "131072"), (0.1, "0.1"), (2.0, "2"), (1 / 3, "0.333"), (100, "100")],
)
def test_numbers_have_no_exponents(number: float, text: str) -> None:
    assert plain(number) == text
