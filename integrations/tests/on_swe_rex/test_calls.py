"""Commands beside the sessions, and files."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from swerex.exceptions import CommandTimeoutError, NonZeroExitCodeError
from swerex.runtime.abstract import Command, CommandResponse, ReadFileRequest, UploadRequest, WriteFileRequest

from rollbox_integrations.swe_rex import RollboxDeployment, RollboxRuntime


async def executed(deployment: RollboxDeployment, command: str | list[str], **options: object) -> CommandResponse:
    return await deployment.runtime.execute(Command.model_validate({"command": command, "timeout": 60.0, **options}))


async def text(runtime: RollboxRuntime, path: str, **options: object) -> str:
    return (await runtime.read_file(ReadFileRequest.model_validate({"path": path, **options}))).content


async def test_a_command_has_its_code_and_its_outputs(deployment: RollboxDeployment) -> None:
    told = await executed(deployment, "echo out; echo err >&2; exit 3", shell=True)
    assert (told.stdout, told.stderr, told.exit_code) == ("out\n", "err\n", 3)
    both = await executed(deployment, ["sh", "-c", "echo out; echo err >&2"], merge_output_streams=True)
    assert (both.stdout, both.stderr) == ("out\nerr\n", "")
    assert (await executed(deployment, ["echo $0 $1", "a", "b"], shell=True)).stdout == "a b\n"
    assert (await executed(deployment, "cat", shell=True)).stdout == ""
    here = await executed(
        deployment, 'pwd; echo $A; test -n "$PATH"', shell=True, cwd="/usr", env={"A": "b"}, check=True
    )
    assert here.stdout == "/usr\nb\n"
    assert (await executed(deployment, r"printf '\377'", shell=True)).stdout == "\\xff"


async def test_one_that_cannot_be_started_has_a_shells_code(deployment: RollboxDeployment) -> None:
    missing = await executed(deployment, "ls -l")
    assert (missing.exit_code, "not found" in missing.stderr) == (127, True)
    assert (await executed(deployment, ["true"], cwd="/no/such")).exit_code == 126


async def test_a_code_that_is_not_0_is_an_error_where_it_is_asked_for(deployment: RollboxDeployment) -> None:
    with pytest.raises(NonZeroExitCodeError, match=r"^no luck: .*code 3(?s:.*)so far"):
        await executed(deployment, "echo so far; exit 3", shell=True, check=True, error_msg="no luck")


async def test_a_late_command_is_killed(deployment: RollboxDeployment) -> None:
    with pytest.raises(CommandTimeoutError):
        await executed(deployment, "sleep 324 & sleep 324", shell=True, timeout=5.0)
    assert (await executed(deployment, ["pgrep", "-f", "sleep [3]24"])).exit_code == 1


async def test_a_cancelled_command_is_killed(deployment: RollboxDeployment) -> None:
    running = asyncio.create_task(executed(deployment, ["sleep", "325"], timeout=None))
    while (await executed(deployment, ["pgrep", "-f", "sleep [3]25"])).exit_code:
        pass
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    while not (await executed(deployment, ["pgrep", "-f", "sleep [3]25"])).exit_code:
        pass


async def test_files_are_text(deployment: RollboxDeployment) -> None:
    runtime = deployment.runtime
    await runtime.write_file(WriteFileRequest(path="/tmp/new/a.txt", content="one\r\n\u00e4"))
    assert await text(runtime, "/tmp/new/a.txt") == "one\n\u00e4"
    assert await text(runtime, "/tmp/new/a.txt", encoding="latin-1") == "one\n\u00c3\u00a4"
    assert await text(runtime, "/tmp/new/a.txt", encoding="ascii", errors="replace") == "one\n\ufffd\ufffd"
    with pytest.raises(UnicodeDecodeError):
        await text(runtime, "/tmp/new/a.txt", encoding="ascii")
    with pytest.raises(FileNotFoundError):
        await text(runtime, "no-such.txt")
    with pytest.raises(ValueError, match="directory"):
        await text(runtime, "/tmp/new")


async def test_files_and_folders_of_this_machine_are_written(deployment: RollboxDeployment, tmp_path: Path) -> None:
    runtime = deployment.runtime
    (tmp_path / "folder/below").mkdir(parents=True)
    program = tmp_path / "folder/below/program"
    program.write_text("#!/bin/sh\necho ran\n")
    program.chmod(0o755)
    await runtime.upload(UploadRequest(source_path=str(tmp_path / "folder"), target_path="/tmp/tools/one"))
    assert (await executed(deployment, ["/tmp/tools/one/below/program"], check=True)).stdout == "ran\n"
    await runtime.upload(UploadRequest(source_path=str(program), target_path="/tmp/tools/two/program"))
    assert await text(runtime, "/tmp/tools/two/program") == program.read_text()
    with pytest.raises(ValueError, match="cannot be read here"):
        await runtime.upload(UploadRequest(source_path=str(tmp_path / "none"), target_path="/tmp/none"))
