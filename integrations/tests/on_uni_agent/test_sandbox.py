"""uni-agent's contract of a sandbox, its tool with a shell, and each row of the page's table."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from uni_agent.sandbox.base import SandboxBackend
from uni_agent.tools.shell import SandboxShell, open_shell_session

from on_uni_agent.conftest import made
from rollbox import Client, Sandbox
from rollbox_integrations.uni_agent import RollboxSandbox, SandboxLostError

IMAGE = os.environ["ROLLBOX_TEST_IMAGE"]
NO_IMAGE = IMAGE.rpartition("/")[0] + "/no-such-image:1"
EATS = "x = b'x' * (1 << 30); print(len(x))"
TRAINER = """
import asyncio, sys
from rollbox_integrations.uni_agent import RollboxSandbox

async def main():
    box = RollboxSandbox(image=sys.argv[1], lease=5, memory="128Mi")
    await box.start()
    print(box.sandbox.id, flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


async def test_a_command_has_its_outputs_and_its_code(box: RollboxSandbox) -> None:
    assert isinstance(box, SandboxBackend)
    told = await box.exec(["sh", "-c", "echo out; echo $A >&2; pwd; exit 3"], env={"A": "b"}, workdir="/usr")
    assert (told.stdout, told.stderr, told.exit_code) == ("out\n/usr\n", "b\n", 3)
    assert (await box.exec_shell("[[ a == a ]] && echo yes")).stdout == "yes\n"
    assert (await box.exec(["no-such-program"])).exit_code == 127


async def test_files_and_folders_go_both_ways(box: RollboxSandbox, tmp_path: Path) -> None:
    await box.write_file("/app/new/a.bin", b"\xff\x00")
    assert await box.read_file("/app/new/a.bin") == b"\xff\x00"
    with pytest.raises(RuntimeError, match="does not exist"):
        await box.read_file("/no/such")
    (tmp_path / "tree/below").mkdir(parents=True)
    (tmp_path / "tree/below/b.txt").write_text("b")
    await box.upload(tmp_path / "tree", "/app/tree")
    await box.download("/app/tree", tmp_path / "back")
    assert (tmp_path / "back/below/b.txt").read_text() == "b"
    await box.download("/app/new/a.bin", tmp_path / "deep/a.bin")
    assert (tmp_path / "deep/a.bin").read_bytes() == b"\xff\x00"
    assert (await box.expose_port(8000)).startswith("http")


async def test_uni_agents_shell_is_the_platforms(box: RollboxSandbox) -> None:
    shell = await open_shell_session(box, env={"A": "given"})
    assert isinstance(shell, SandboxShell)
    assert (await shell.run("cd /usr; B=kept; echo $A")).stdout == "given\n"
    late = await shell.run("sleep 344", timeout=5)
    assert (late.timed_out, late.exit_code) == (True, None)
    kept = await shell.run("pwd; echo $B >&2; (exit 4)")
    assert (kept.stdout, kept.stderr, kept.exit_code) == ("/usr\n", "kept\n", 4)
    assert (await shell.run(" ")).exit_code == 0
    assert (await box.exec(["pgrep", "-fx", "sleep 344"])).exit_code == 1
    await shell.run("exit 3")
    with pytest.raises(RuntimeError, match="exited with code 3"):
        await shell.run("true")
    await shell.close()


async def test_a_deadline_is_a_result(box: RollboxSandbox) -> None:
    late = await box.exec(["sleep", "345"], timeout=5)
    assert (late.exit_code, "timed out after 5" in late.stderr) == (-1, True)
    assert (await box.exec(["pgrep", "-fx", "sleep 345"])).exit_code == 1


async def test_a_cancelled_command_is_killed(box: RollboxSandbox) -> None:
    running = asyncio.create_task(box.exec(["sleep", "346"]))
    while (await box.exec(["pgrep", "-fx", "sleep 346"])).exit_code:
        pass
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    while not (await box.exec(["pgrep", "-fx", "sleep 346"])).exit_code:
        pass


async def test_out_of_memory_is_a_result(client: Client) -> None:
    async with made(memory="64Mi") as box:
        told = await box.exec(["python3", "-c", EATS])
        assert (told.exit_code, "memory limit" in told.stderr) == (137, True)


async def test_a_sandbox_that_somebody_deletes_is_no_result(box: RollboxSandbox, client: Client) -> None:
    shell = await box.open_shell()
    await client.delete(box.sandbox.id)
    calls = (
        lambda: box.exec(["true"]),
        lambda: box.read_file("/etc/hostname"),
        lambda: box.write_file("/tmp/a", "a"),
        lambda: shell.run("true"),
    )
    for call in calls:
        with pytest.raises(SandboxLostError, match=r"deleted \(caller; mask the sample\): ") as gone:
            await call()
        assert gone.value.fault["mask_sample"]
    assert box.fault == gone.value.fault
    assert not await box.is_alive()


async def test_an_image_that_is_not_there_is_no_sandbox(client: Client) -> None:
    with pytest.raises(SandboxLostError, match=r"image_not_found \(caller; mask the sample\): "):
        await made(NO_IMAGE).start()


async def test_a_quota_that_is_used_up_is_no_sandbox(box: RollboxSandbox, client: Client) -> None:
    owner = (await client.quota()).owner
    await client.set_quota(owner, sandboxes=1)
    try:
        with pytest.raises(SandboxLostError, match=r"quota_exceeded \(caller; mask the sample\): "):
            await made(start_timeout=5).start()
    finally:
        await client.remove_quota(owner)


async def test_a_sandbox_whose_program_died_is_no_result(client: Client) -> None:
    program = await asyncio.create_subprocess_exec(
        sys.executable, "-c", TRAINER, IMAGE, env=os.environ.copy(), stdout=asyncio.subprocess.PIPE
    )
    assert program.stdout is not None
    box = made()
    box._sandbox = await Sandbox.connect((await program.stdout.readline()).decode().strip())
    program.send_signal(signal.SIGKILL)
    await program.communicate()
    while (await client.get(box.sandbox.id)).state != "ended":  # noqa: ASYNC110 - nothing tells of it
        await asyncio.sleep(0.5)
    with pytest.raises(SandboxLostError, match=r"lease_expired \(caller; mask the sample\): "):
        await box.exec(["true"])


async def test_a_wrong_option_is_the_callers(client: Client) -> None:
    with pytest.raises(ValueError, match=r"invalid_argument \(caller; score the sample\): .*memory"):
        await made(memory="much").start()
    with pytest.raises(TypeError, match="memroy"):
        made(memroy=1)


def test_without_uni_agent_it_is_told_which_one_works() -> None:
    words = [sys.executable, "-c", "import rollbox_integrations.uni_agent"]
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    told = subprocess.run(words, env=environ, capture_output=True, text=True, check=False)
    assert (told.returncode, "works with verl-project/uni-agent at 6f4a7c9" in told.stderr) == (1, True)
