"""The command line on standard streams that are full, closed or not there at all."""

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.eventually import LIMIT_S
from tests.support.gateway_fake import FakeGateway
from tests.unit.sdk.test_cli import made


def shell(line: str, streams: str, before: str = "") -> subprocess.CompletedProcess[str]:
    """Run `rollbox ...` by a shell, with redirections, after another command."""
    command = f"{before} {shlex.quote(sys.executable)} -m rollbox {line} {streams}"
    return subprocess.run(["sh", "-c", command], capture_output=True, text=True, timeout=LIMIT_S, check=False)


@pytest.mark.parametrize(
    "line", ["--version", "ps --json", "ls sb-1:/", "exec sb-1 -- echo hello", "exec sb-1 --json -- true"]
)
@pytest.mark.parametrize(
    ("streams", "said"), [(">/dev/full", "No space left on device"), (">&-", "Bad file descriptor")]
)
def test_a_stdout_that_takes_nothing_is_told(
    apart: FakeGateway, tmp_path: Path, line: str, streams: str, said: str
) -> None:
    made(apart)
    apart.files.root = tmp_path
    (tmp_path / "f").touch()
    ran = shell(line, streams)
    assert (ran.returncode, ran.stderr) == (2, f"error: the standard output cannot be written: {said}\n")


@pytest.mark.parametrize("streams", ["2>/dev/full", "2>&-"])
def test_a_stderr_that_takes_nothing_changes_no_exit_code(apart: FakeGateway, tmp_path: Path, streams: str) -> None:
    made(apart)
    apart.files.root = tmp_path
    listed, missing = shell("ps --json", streams), shell("ls sb-1:/missing", f"--json {streams}")
    assert (listed.returncode, '"sb-1"' in listed.stdout) == (0, True)
    assert (missing.returncode, missing.stdout) == (2, "")


def test_an_absent_stdin_is_at_its_end(apart: FakeGateway) -> None:
    made(apart)
    ran = shell("exec -i sb-1 -- cat", "<&-")
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")


def test_a_stdin_that_cannot_be_read_is_told(apart: FakeGateway, tmp_path: Path) -> None:
    made(apart)
    ran = shell("exec -i sb-1 -- cat", f"0> {tmp_path}/written")
    assert ran.returncode == 2
    assert "the standard input cannot be read: Bad file descriptor" in ran.stderr
    assert "Traceback" not in ran.stderr


@pytest.mark.parametrize("streams", [">/dev/full", ">&-"])
@pytest.mark.parametrize("json", ["", "--json"])
def test_the_id_of_a_sandbox_that_cannot_be_printed_is_on_stderr(apart: FakeGateway, streams: str, json: str) -> None:
    ran = shell(f"create python {json}", streams)
    (sandbox_id,) = apart.sandboxes
    assert f"sandbox {sandbox_id} runs, and its id could not be printed" in ran.stderr
    assert apart.sandboxes[sandbox_id]["state"] == "running"
    assert "Traceback" not in ran.stderr


@pytest.mark.parametrize("streams", [">/dev/full 2>/dev/full", ">&- 2>&-", ">/dev/full 2>&-"])
def test_a_sandbox_that_nobody_can_know_of_is_deleted(apart: FakeGateway, streams: str) -> None:
    ran = shell("create python", streams)
    assert (ran.returncode, [box["state"] for box in apart.sandboxes.values()]) == (2, ["ended"])


@pytest.mark.parametrize(
    ("line", "streams"),
    [
        ("--nope", "2>&-"),
        ("ps --nope", ">&- 2>&- <&-"),
        ("nosuch", "2>/dev/full"),
        ("create", "<&-"),
        ("create x --ttl soon", ">&-"),
        ("up --listen nope", "2>&-"),
        ("up --listen nope", ">&-"),
    ],
)
def test_a_usage_error_ends_as_one_whatever_the_streams_are(apart: FakeGateway, line: str, streams: str) -> None:
    ran = shell(line, streams)
    assert (ran.returncode, ran.stdout) == (64 if line.startswith("up") else 2, "")
    assert bool(ran.stderr) == ("2>" not in streams)
    assert "Traceback" not in ran.stderr
    assert not apart.sandboxes


@pytest.mark.parametrize("line", ["config set one http://gateway --key-stdin", "egress set sb-1 @-"])
def test_words_that_are_typed_in_and_cannot_be_read_are_told(apart: FakeGateway, tmp_path: Path, line: str) -> None:
    made(apart)
    ran = shell(line, f"0> {tmp_path}/written", before=f"export ROLLBOX_CONFIG={tmp_path}/config.toml;")
    assert ran.returncode == 2
    assert "the standard input cannot be read: Bad file descriptor" in ran.stderr
    assert "Traceback" not in ran.stderr
