"""Processes on the command line: streamed output and input, a terminal, attach and kill."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import rollbox as sdk
from tests.support.eventually import LIMIT_S
from tests.support.gateway_fake import FakeGateway
from tests.unit.sdk.test_cli import UNHURRIED, made, rollbox

ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(sdk.__file__).parents[1])}


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "rollbox", *arguments]


def environment(fake: FakeGateway) -> dict[str, str]:
    return {**ENVIRONMENT, "ROLLBOX_URL": os.environ["ROLLBOX_URL"], "ROLLBOX_API_KEY": os.environ["ROLLBOX_API_KEY"]}


def test_output_comes_while_input_goes(apart: FakeGateway) -> None:
    pipe = subprocess.PIPE
    started = command("exec", "-i", made(apart), "--", "cat")
    with subprocess.Popen(started, env=environment(apart), stdin=pipe, stdout=pipe) as process:
        assert process.stdin
        assert process.stdout
        for line in (b"one\n", b"two\n"):
            process.stdin.write(line)
            process.stdin.flush()
            assert process.stdout.readline() == line
        process.stdin.close()
        assert process.wait(LIMIT_S) == 0


def test_a_reader_that_leaves_ends_the_command(apart: FakeGateway) -> None:
    endless = ("exec", made(apart), "--", "sh", "-c", "while echo y; do :; done")
    started = [sys.executable, "-c", UNHURRIED, *endless]
    with subprocess.Popen(started, env=environment(apart), stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout
        assert process.stdout.read(2) == b"y\n"
        process.stdout.close()
        assert process.wait(LIMIT_S) == 141
    (ended,) = apart.processes.execs.values()
    assert (ended.result or {})["end"] == "cancelled"


@pytest.mark.parametrize("kind", ["exec", "json", "ls", "table"])
def test_a_reader_that_has_left_is_told_as_a_shell_does(apart: FakeGateway, tmp_path: Path, kind: str) -> None:
    apart.files.root = tmp_path
    (tmp_path / "file").touch()
    apart.results["echo y"] = {"exit_code": 0, "stdout": "y"}
    box = made(apart)
    arguments = {
        "exec": ("exec", box, "--keep", "head", "--", "echo", "y"),
        "json": ("ps", "--json"),
        "ls": ("ls", f"{box}:/"),
        "table": ("ps",),
    }[kind]
    reader, writer = os.pipe()
    os.close(reader)
    try:
        started = command(*arguments)
        done = subprocess.run(started, env=environment(apart), stdout=writer, stderr=-1, timeout=LIMIT_S, check=False)
    finally:
        os.close(writer)
    assert (done.returncode, done.stderr) == (141, b"")


def test_a_terminal_where_there_is_none_is_refused(apart: FakeGateway) -> None:
    result = rollbox("exec", "-t", made(apart), "--", "sh")
    assert result.exit_code == 2
    assert "-i alone" in result.stderr
    assert rollbox("exec", "-t", "--json", "sb-1", "--", "sh").exit_code == 2
