"""`rollbox up` starts, says what it is, stops cleanly, and comes back after a crash without losing anything."""

from __future__ import annotations

import asyncio
import functools
import json
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from rollbox import Client
from rollbox.errors import SandboxError, SandboxLost
from tests.support.containers import engine, left_containers
from tests.support.conversation import conversing
from tests.support.images import IMAGE
from tests.support.labels import longest
from tests.support.process_memory import holds
from tests.support.stack import Stack, free_port, start, stop_process
from tests.support.waiting import succeeds, until


@pytest.fixture
def folder() -> Iterator[Path]:
    """A short state folder."""
    made = Path(tempfile.mkdtemp(prefix="rb-", dir="/tmp"))
    yield made
    shutil.rmtree(made)


def written(folder: Path) -> str:
    """What stands in all files there."""
    return "".join(path.read_text(errors="replace") for path in folder.rglob("*") if path.is_file())


async def containers_of(sandbox_id: str) -> list[str]:
    return [name for name in await left_containers() if sandbox_id in name]


async def test_a_clean_stop_deletes_what_runs(folder: Path) -> None:
    up = await start(folder)
    async with Client(up.url, up.api_key) as client:
        sandbox = await client.create(IMAGE)
        await sandbox.detach()
        info = await client.info()
        assert info["isolation"] == "runc"
    assert len(await containers_of(sandbox.id)) == 2
    assert await stop_process(up.process) == 0
    assert await containers_of(sandbox.id) == []


async def test_a_secret_is_in_no_file_no_container_and_not_in_the_control_plane(folder: Path) -> None:
    secret = f"hush-{uuid4().hex}"
    up = await start(folder)
    async with Client(up.url, up.api_key) as client:
        async with await client.create(IMAGE, env={"SECRET": secret}, labels={"l": "seen"}) as sandbox:
            assert (await sandbox.exec("echo $SECRET")).stdout == f"{secret}\n"
            described = await engine("inspect", *await containers_of(sandbox.id))
            assert "seen" in described
            assert secret not in described
            assert not holds(up.process.pid, secret)
        # The record of its end is written there.
        files = written(folder)
        assert sandbox.id in files
        assert secret not in files
    assert await stop_process(up.process) == 0


async def test_after_a_crash_the_next_start_adopts_what_runs(folder: Path) -> None:
    port = free_port()
    up = await start(folder, port=port)
    async with Client(up.url, up.api_key) as client:
        sandbox = await client.create(IMAGE, env={"KEPT": "yes"}, labels=longest())
        await sandbox.exec("echo kept > /tmp/file")
        children = up.pids()
        up.process.kill()
        await up.process.communicate()
        half = await half_start(sandbox.id)
        up = await start(folder, port=port)
        assert up.pids()["rollbox-gateway"] != children["rollbox-gateway"]
        again = await client.connect(sandbox.id)
        assert (await again.exec("cat /tmp/file; echo $KEPT")).stdout == "kept\nyes\n"
        assert again.labels == longest()
        # The token from before the crash is still good.
        assert (await sandbox.exec("echo same token")).ok
        # Taken off behind the start.
        await until(lambda: gone(half))
        await sandbox.delete(wait=True)
    assert await stop_process(up.process) == 0
    assert await containers_of(sandbox.id) == []


async def half_start(sandbox_id: str) -> str:
    """A target without a sidecar, as a crash in the middle of a start leaves it; its name."""
    whole = f"rollbox-{sandbox_id}-target"
    labels: dict[str, str] = json.loads(await engine("inspect", whole))[0]["Config"]["Labels"]
    half = f"sb-{uuid4().hex[:12]}half"
    options = [f"--label={key}={value.replace(sandbox_id, half)}" for key, value in labels.items()]
    await engine("create", "--name", f"rollbox-{half}-target", "--network", "none", *options, IMAGE, "true")
    return f"rollbox-{half}-target"


async def gone(container: str) -> bool:
    return container not in await left_containers()


async def test_the_gateway_is_restarted_when_it_dies(folder: Path) -> None:
    up = await start(folder)
    async with Client(up.url, up.api_key) as client, await client.create(IMAGE) as sandbox:
        os.kill(up.pids()["rollbox-gateway"], signal.SIGKILL)
        # The SDK repeats with the same exec_id until the new gateway has its routes.
        assert (await sandbox.exec("echo back")).stdout == "back\n"
    assert await stop_process(up.process) == 0


async def test_an_exec_under_way_survives_the_gateway(folder: Path) -> None:
    up = await start(folder)
    async with Client(up.url, up.api_key) as client, await client.create(IMAGE) as sandbox:
        call = asyncio.create_task(sandbox.exec("echo ran >> /tmp/runs; sleep 3; cat /tmp/runs"))
        await until(lambda: succeeds(sandbox, "cat /tmp/runs"))
        os.kill(up.pids()["rollbox-gateway"], signal.SIGKILL)
        async with asyncio.timeout(60):
            assert (await call).stdout == "ran\n"
    assert await stop_process(up.process) == 0


async def test_streams_under_way_survive_the_gateway(folder: Path) -> None:
    up = await start(folder)
    async with (
        Client(up.url, up.api_key) as client,
        await client.create(IMAGE) as sandbox,
        conversing([sandbox]) as talks,
    ):
        killed = 0
        for _ in range(3):
            await asyncio.gather(*(talk.goes_on() for talk in talks))
            # What had come before the last kill may be enough to go on, and the next gateway not there yet.
            killed = await until(functools.partial(gateway, up, killed))
            os.kill(killed, signal.SIGKILL)
        # Beyond the last restart: the new gateway serves what an old one had begun.
        await asyncio.gather(*(talk.goes_on() for talk in talks))
    assert await stop_process(up.process) == 0


async def test_a_cell_under_way_survives_the_gateway_and_is_answered_once(folder: Path) -> None:
    up = await start(folder)
    code = "import os, time\nprint('begun')\nopen('/tmp/runs', 'a').write('ran ')\n"
    code += "while not os.path.exists('/tmp/go'): time.sleep(0.01)\nprint(open('/tmp/runs').read())\nkept = 42\nkept"
    async with (
        Client(up.url, up.api_key) as client,
        await client.create(IMAGE) as sandbox,
        await sandbox.interpreter() as python,
    ):
        for at in range(2):
            await sandbox.exec("rm -f /tmp/go /tmp/runs", check=True)
            running = asyncio.create_task(python.run(code, cell_id=f"cell-{at}"))
            await until(lambda: succeeds(sandbox, "test -s /tmp/runs"))
            os.kill(await until(functools.partial(gateway, up, 0)), signal.SIGKILL)
            # By the next gateway.
            await sandbox.files.write("/tmp/go", b"")
            async with asyncio.timeout(60):
                cell = await running
            assert (cell.end, cell.text, cell.stdout, cell.restarted) == ("finished", "42", "begun\nran \n", False)
            again = await python.run(code, cell_id=f"cell-{at}")
            assert (again.stdout, again.execution_count) == (cell.stdout, at + 1)
        assert (await python.run("kept")).text == "42"
    assert await stop_process(up.process) == 0


async def gateway(up: Stack, before: int) -> int:
    """Its process id; 0 while there is none but the one before."""
    await asyncio.sleep(0.02)
    found = up.pids().get("rollbox-gateway", 0)
    return found if found != before else 0


async def test_a_stop_during_an_exec_is_told_to_the_caller(folder: Path) -> None:
    up = await start(folder)
    async with Client(up.url, up.api_key) as client:
        sandbox = await client.create(IMAGE)
        call = asyncio.create_task(sandbox.exec("touch /tmp/began; sleep 600"))
        await until(lambda: succeeds(sandbox, "cat /tmp/began"))
        assert await stop_process(up.process) == 0
        with pytest.raises(SandboxError) as told:
            async with asyncio.timeout(60):
                await call
        assert told.value.code in {"stopped_by_operator", "draining", "stream_interrupted", "sandbox_lost"}
        assert told.value.mask_sample
    assert await containers_of(sandbox.id) == []


async def test_a_sandbox_that_dies_from_outside_is_told_at_once(folder: Path) -> None:
    up = await start(folder)
    async with Client(up.url, up.api_key) as client:
        sandbox = await client.create(IMAGE)
        call = asyncio.create_task(sandbox.exec("touch /tmp/began; sleep 600"))
        await until(lambda: succeeds(sandbox, "cat /tmp/began"))
        await engine("kill", f"rollbox-{sandbox.id}-target")
        with pytest.raises(SandboxLost) as lost:
            async with asyncio.timeout(30):
                await call
        assert lost.value.is_infra
        assert lost.value.mask_sample
        with pytest.raises(SandboxLost):
            await sandbox.exec("true")
    assert await stop_process(up.process) == 0
    assert await containers_of(sandbox.id) == []


@pytest.mark.long
async def test_the_ttl_ends_a_sandbox(folder: Path) -> None:
    up = await start(folder)
    async with Client(up.url, up.api_key) as client:
        # Time enough for both starts, which it includes.
        sandbox, longer = await asyncio.gather(*(client.create(IMAGE, ttl=20) for _ in range(2)))
        await longer.extend(600)
        with pytest.raises(SandboxError) as ended:
            async with asyncio.timeout(60):
                await sandbox.exec("sleep 600")
        assert ended.value.code == "ttl_expired"
        assert (ended.value.fault, ended.value.mask_sample) == ("caller", True)
        assert (await longer.exec("sleep 4; echo alive")).stdout == "alive\n"
        await longer.delete()
    assert await stop_process(up.process) == 0


async def refused(*options: str, **environment: str) -> tuple[int, str]:
    """Exit status and stderr of an `up` that must not start."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "rollbox",
        "up",
        "--json",
        *options,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, **environment},
    )
    async with asyncio.timeout(60):
        _, err = await process.communicate()
    assert process.returncode is not None
    return process.returncode, err.decode()


async def test_a_second_up_on_the_same_state_is_refused(folder: Path) -> None:
    up = await start(folder)
    status, said = await refused("--state-dir", str(folder), "--listen", f"127.0.0.1:{free_port()}")
    assert status != 0
    assert str(folder) in said
    assert await stop_process(up.process) == 0


async def test_an_address_in_use_is_named(folder: Path) -> None:
    up = await start(folder)
    with tempfile.TemporaryDirectory(prefix="rb-", dir="/tmp") as other:
        status, said = await refused("--state-dir", other, "--listen", up.url.removeprefix("http://"))
    assert status != 0
    assert up.url.removeprefix("http://") in said
    assert await stop_process(up.process) == 0


async def test_no_engine_says_what_to_install(folder: Path) -> None:
    status, said = await refused("--state-dir", str(folder), "--engine", "unix:///nonexistent/engine.sock")
    assert status != 0
    assert "/nonexistent/engine.sock" in said
    # Nothing on PATH but what Python needs: neither Docker nor Podman.
    status, said = await refused("--state-dir", str(folder), PATH="/nonexistent", DOCKER_HOST="")
    assert status != 0
    assert "podman" in said.lower()


async def test_bad_settings_stop_the_start_with_64(folder: Path) -> None:
    status, said = await refused("--state-dir", str(folder), "--listen", "nonsense")
    assert status == 64
    assert "nonsense" in said
    status, said = await refused("--state-dir", "/tmp/" + "x" * 120)
    assert status == 64
    assert "must have at most" in said
