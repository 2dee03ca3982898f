"""Calls that inspect's own tests do not make."""

from __future__ import annotations

import asyncio

import pytest
from inspect_ai.util import OutputLimitExceededError, override_sandbox_output_limit

from rollbox_integrations.inspect import RollboxSandboxEnvironment


async def test_more_output_than_inspect_takes_is_its_end(sandbox_env: RollboxSandboxEnvironment) -> None:
    with override_sandbox_output_limit(1000, "exec"):
        result = await sandbox_env.exec(["seq", "100000"])
    assert result.success
    assert (len(result.stdout), result.stdout[-13:]) == (1000, "99999\n100000\n")


async def test_bytes_that_are_no_text_are_replaced(sandbox_env: RollboxSandboxEnvironment) -> None:
    assert (await sandbox_env.exec(["printf", "a\\377b"])).stdout == "a\ufffdb"


async def test_what_does_not_start_says_why(sandbox_env: RollboxSandboxEnvironment) -> None:
    missing = await sandbox_env.exec(["no-such-program"])
    assert (missing.returncode, "no-such-program" in missing.stderr) == (127, True)
    nowhere = await sandbox_env.exec(["true"], cwd="/no/such/folder")
    assert (nowhere.returncode, "/no/such/folder" in nowhere.stderr) == (126, True)
    large = await sandbox_env.exec(["true", "x" * (3 << 20)])
    assert (large.returncode, "argument list too long" in large.stderr) == (126, True)
    with pytest.raises(ValueError, match="embedded null byte"):
        await sandbox_env.exec(["echo", "a\0b"])


@pytest.mark.parametrize("path", ["/etc/passwd/below", "/" + "n" * 300])
async def test_a_path_that_cannot_be_is_a_file_that_is_not_there(
    sandbox_env: RollboxSandboxEnvironment, path: str
) -> None:
    with pytest.raises(FileNotFoundError) as missing:
        await sandbox_env.read_file(path)
    assert missing.value.filename == path
    with pytest.raises(FileNotFoundError):
        await sandbox_env.write_file(path, "")


async def test_a_file_over_the_limit_is_refused_and_one_at_it_is_not(sandbox_env: RollboxSandboxEnvironment) -> None:
    await sandbox_env.write_file("five", "12345")
    with override_sandbox_output_limit(5, "read_file"):
        assert await sandbox_env.read_file("five") == "12345"
    with override_sandbox_output_limit(4, "read_file"), pytest.raises(OutputLimitExceededError):
        await sandbox_env.read_file("five")


async def test_a_person_gets_a_shell_by_the_command_line(sandbox_env: RollboxSandboxEnvironment) -> None:
    told = await sandbox_env.connection(user="root")
    sandbox = sandbox_env.sandbox.id
    assert (told.type, told.container) == ("rollbox", sandbox)
    assert told.command == f"rollbox exec -it --user root {sandbox} -- sh"


async def test_a_cancelled_command_is_killed(sandbox_env: RollboxSandboxEnvironment) -> None:
    running = asyncio.create_task(sandbox_env.exec(["sleep", "365"]))
    while not (await sandbox_env.exec(["pgrep", "-fx", "sleep 365"])).success:
        pass
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    while (await sandbox_env.exec(["pgrep", "-fx", "sleep 365"])).success:
        pass
