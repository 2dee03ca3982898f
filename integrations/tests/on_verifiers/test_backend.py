"""verifiers' contract of a runtime backend, by the views that tasks and harnesses get."""

from __future__ import annotations

import asyncio
import os
import sys
import urllib.request
from pathlib import Path

import pytest
from pydantic import ValidationError
from verifiers.v1.errors import SandboxError
from verifiers.v1.runtimes import Runtime, backend_cls

from on_verifiers.rollouts import backend, config, runtime
from rollbox import Client


def test_its_flags_are_what_the_tests_below_show() -> None:
    cls = backend_cls(config())
    flags = (cls.SUPPORTS_TASK_IMAGES, cls.SUPPORTS_USER_SWITCHING, cls.SUPPORTS_PORT_EXPOSURE)
    assert (flags, cls.SUPPORTS_COMPOSE, cls.is_local) == ((True, True, True), False, False)


def test_an_option_that_is_none_is_refused() -> None:
    with pytest.raises(ValidationError, match="memroy"):
        config(memroy=1)


async def test_a_command_ends_with_its_code_and_its_output(box: Runtime) -> None:
    result = await box.run(["sh", "-c", "pwd; echo $A; echo e >&2; exit 3"], {"A": "b"})
    assert (result.exit_code, result.stdout, result.stderr) == (3, "/app\nb\n", "e\n")
    assert (await box.run(["sh", "-c", "kill -TERM $$"], {})).exit_code == 143
    assert (await box.run(["no-such-program"], {})).exit_code == 127
    assert (await box.run(["cat"], {})).stdout == ""
    assert await box.alive()


async def test_a_process_streams_in_both_directions(box: Runtime) -> None:
    process = await box.exec(["sh", "-c", "read line; echo got $line; echo e >&2; exec cat"], {})
    assert await process.poll() is None
    await process.write(b"one\n")
    assert await anext(process.stdout) == b"got one\n"
    assert await anext(process.stderr) == b"e\n"
    await process.write(b"two\n")
    assert await anext(process.stdout) == b"two\n"
    await process.kill()
    assert await process.wait() == 137
    assert await process.poll() == 137
    assert [data async for data in process.stdout] == []
    await process.kill()


async def test_a_process_is_asked_to_end(box: Runtime) -> None:
    process = await box.exec(["sh", "-c", "trap 'exit 5' TERM; echo up; while :; do sleep 0.1; done"], {})
    assert await anext(process.stdout) == b"up\n"
    await process.terminate()
    assert await process.wait() == 5


async def test_a_program_that_is_not_there_has_ended_with_a_shells_words(box: Runtime) -> None:
    process = await box.exec(["no-such-program"], {})
    assert (await process.wait(), await process.poll()) == (127, 127)
    assert b"no-such-program" in b"".join([data async for data in process.stderr])


async def test_all_of_a_long_output_comes_by_a_stream(box: Runtime) -> None:
    process = await box.exec(["sh", "-c", "head -c 30000000 /dev/zero"], {})
    assert sum([len(data) async for data in process.stdout]) == 30_000_000
    assert await process.wait() == 0


async def test_a_background_program_outlives_its_call(box: Runtime) -> None:
    await box.run_background(["sh", "-c", "echo up; exec sleep 300"], {}, "server.log")
    while (await box.run(["cat", "server.log"], {})).stdout != "up\n":  # noqa: ASYNC110 - nothing tells of it
        await asyncio.sleep(0.1)
    assert (await box.run(["pgrep", "-x", "sleep"], {})).exit_code == 0


async def test_files_are_read_and_written_whole_up_to_a_limit(box: Runtime) -> None:
    data = bytes(range(256)) * 4
    await box.write("deep/er/file", data)
    assert await box.read("deep/er/file") == await box.read("/app/deep/er/file") == data
    assert await box.read("deep/er/file", max_bytes=1024) == data
    with pytest.raises(SandboxError, match="over the 1023 byte limit"):
        await box.read("deep/er/file", max_bytes=1023)
    with pytest.raises(SandboxError, match="file_not_found"):
        await box.read("nothing")


async def test_a_view_acts_as_its_user(box: Runtime) -> None:
    await box.run(["chmod", "777", "/app"], {})
    nobody = box.with_user("nobody", home="/tmp")
    told = await nobody.run(["sh", "-c", "id -un; echo $HOME"], {})
    assert told.stdout == "nobody\n/tmp\n"
    await nobody.write("own", b"x")
    assert (await box.run(["stat", "-c", "%U", "own"], {})).stdout == "nobody\n"
    await box.write("/root/secret", b"x")
    await box.run(["chmod", "700", "/root"], {})
    with pytest.raises(SandboxError, match="permission_denied"):
        await nobody.read("/root/secret")
    process = await nobody.exec(["id", "-un"], {})
    assert b"".join([data async for data in process.stdout]) == b"nobody\n"


async def test_a_server_is_reached_from_outside(box: Runtime) -> None:
    await box.write("index.html", b"hello")
    assert box.published_port == 8000
    await box.run_background(["python3", "-m", "http.server", "8000", "--bind", "0.0.0.0"], {}, "log")
    await backend(box).sandbox.ports.wait(8000)
    url = await box.expose(8000)
    with await asyncio.to_thread(urllib.request.urlopen, f"{url}/index.html", timeout=30) as answer:
        assert answer.read() == b"hello"


async def test_a_cancelled_command_is_dead(box: Runtime) -> None:
    running = asyncio.create_task(box.run(["sh", "-c", "echo > begun; exec sleep 301"], {}))
    while (await box.run(["test", "-e", "begun"], {})).exit_code:  # noqa: ASYNC110 - nothing tells of it
        await asyncio.sleep(0.1)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert (await box.run(["pgrep", "-f", "sleep 301"], {})).exit_code == 1


async def test_a_policy_is_in_force_before_the_agent_begins(client: Client) -> None:
    async with runtime(allow=["pypi.org", "https://*.example.org:8443"]) as box:
        sandbox = backend(box).sandbox
        before = (await sandbox.egress()).policy
        await box.backend.prepare_execution(["https://trainer.example.net:4000/v1"])
        state = await sandbox.egress()
        hosts = {rule["host"]: rule["ports"] for rule in state.rules["allow"]}
        assert (before, state.applied) == ("offline", True)
        assert hosts == {
            "trainer.example.net": [[4000, 4000]],
            "pypi.org": [[80, 80], [443, 443]],
            "*.example.org": [[8443, 8443]],
        }
        await box.backend.prepare_execution(None)
        assert (await sandbox.egress()).policy == "offline"
    async with runtime(allow=["exa*ple.org"]) as box:
        with pytest.raises(SandboxError, match=r"'exa\*ple.org' is no host"):
            await box.backend.prepare_execution([])


LEFT = """
import asyncio, sys
from on_verifiers.rollouts import config
from verifiers.v1.runtimes import make_backend

backend = make_backend(config())
asyncio.run(backend.start())
print(backend.info.id)
"""


async def test_a_runtime_whose_loop_is_gone_is_deleted_at_exit(client: Client) -> None:
    environ = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    program = await asyncio.create_subprocess_exec(
        sys.executable, "-c", LEFT, env=environ, stdout=asyncio.subprocess.PIPE
    )
    told, _ = await program.communicate()
    end = (await client.get(told.decode().strip())).end
    assert program.returncode == 0
    assert end is not None
    assert end.cause == "deleted"
