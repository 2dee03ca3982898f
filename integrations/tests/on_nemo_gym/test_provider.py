"""NeMo Gym's contract of a provider, through its own facades."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from nemo_gym.sandbox import (
    AsyncSandbox,
    ConnectableProvider,
    Sandbox,
    SandboxSpec,
    SandboxStatus,
    SupportsSandboxEndpoint,
    create_provider,
    list_providers,
)

from on_nemo_gym.sandboxes import IMAGE, LABELS, own, sandbox, started
from rollbox import Client

SERVER = ["python3", "-m", "http.server", "8000", "--directory", "/srv/site"]
HOST = """
import asyncio, sys
from nemo_gym.sandbox import AsyncSandbox, SandboxSpec

async def main():
    box = AsyncSandbox({"rollbox": {"lease": 5}}, SandboxSpec(image=sys.argv[1], resources={"memory_mib": 128}))
    await box.start()
    print(box._require_handle().sandbox_id, flush=True)
    await box.exec("sleep 300")

asyncio.run(main())
"""


def test_its_entry_point_names_it() -> None:
    assert "rollbox" in list_providers()
    provider = create_provider({"rollbox": None})
    assert provider.name == "rollbox"
    assert isinstance(provider, SupportsSandboxEndpoint)
    assert isinstance(provider, ConnectableProvider)


async def test_a_command_ends_with_its_code_and_its_outputs_apart(box: AsyncSandbox) -> None:
    result = await box.exec("echo out; echo err >&2; exit 3")
    assert (result.stdout, result.stderr, result.return_code, result.error_type) == ("out\n", "err\n", 3, None)
    there = await box.exec("echo $A; pwd; id -u", cwd="/tmp", env={"A": "b"}, user=1000)
    assert there.stdout == "b\n/tmp\n1000\n"
    assert (await box.exec("id -u", user="root")).stdout == "0\n"
    missing = await box.exec("true", cwd="/no/such")
    assert (missing.return_code, "/no/such" in (missing.stderr or "")) == (126, True)
    nobody = await box.exec("true", user="nobody-of-this-name")
    assert (nobody.return_code, nobody.error_type) == (126, None)


async def test_binary_output_and_commands_of_megabytes_are_results(box: AsyncSandbox) -> None:
    assert (await box.exec(r"printf '\377\376a'")).stdout == "\ufffd\ufffda"
    large = await box.exec(f"true {'x' * (3 << 20)}")
    assert (large.return_code, large.error_type) == (126, None)
    assert "argument list too long" in (large.stderr or "")


async def test_what_a_spec_says_is_what_it_gets(client: Client) -> None:
    spec: dict[str, Any] = {
        "workdir": "/made/new",
        "env": {"A": "b"},
        "files": {"/made/new/in.txt": "there\n"},
        "metadata": {"team": "rl"},
        "resources": {"cpu": 0.5, "memory_mib": 256},
        "ttl_s": 1234,
    }
    async with started(**spec) as box:
        assert (await box.exec("pwd; echo $A; cat in.txt")).stdout == "/made/new\nb\nthere\n"
        record = own(box).record
        assert record.labels.items() >= {"team": "rl", "sandbox-api": "rollbox", **LABELS}.items()
        of_the_run = await client.list({**LABELS, "run": record.labels["run"]})
        assert record.id in {one.id for one in of_the_run}


async def test_files_go_up_and_come_down(box: AsyncSandbox, tmp_path: Path) -> None:
    data = bytes(range(256)) * 4096
    (tmp_path / "up").write_bytes(data)
    await box.upload(tmp_path / "up", "/srv/new/up")
    await box.download("/srv/new/up", tmp_path / "deep/down")
    assert await asyncio.to_thread((tmp_path / "deep/down").read_bytes) == data
    with pytest.raises(FileNotFoundError, match="/no/such"):
        await box.download("/no/such", tmp_path / "none")


async def test_a_service_is_reached_at_its_endpoint(client: Client) -> None:
    async with started(files={"/srv/site/a": "hello"}, entrypoint=SERVER, ports=[8000]) as box:
        await own(box).ports.wait(8000)
        there = await box.endpoint(8000)
        async with aiohttp.ClientSession() as web:
            answer = await web.get(f"{there.endpoint}/a", headers=there.headers)
            assert await answer.text() == "hello"
            assert (await web.get(f"{there.endpoint}/a")).status in {401, 403, 404}


async def test_another_process_reaches_it_by_its_description(box: AsyncSandbox, client: Client) -> None:
    await box.exec("echo kept > /tmp/a")
    descriptor = await box.serialize()
    other = await AsyncSandbox.connect(descriptor, provider=create_provider({"rollbox": None}))
    assert (await other.exec("cat /tmp/a")).stdout == "kept\n"
    await other.disconnect()
    assert await box.status() == SandboxStatus.RUNNING
    with pytest.raises(ValueError, match="scope 'operate'"):
        await box.serialize(scope="operate")


async def test_its_status_is_that_of_the_sandbox(client: Client) -> None:
    async with started() as box:
        assert await box.status() == SandboxStatus.RUNNING
        await client.delete(own(box).id)
        assert await box.status() == SandboxStatus.STOPPED
    await box.stop()


async def test_a_cancelled_call_kills_its_command(box: AsyncSandbox) -> None:
    call = asyncio.create_task(box.exec("echo > /tmp/runs; sleep 305"))
    while (await box.exec("test -e /tmp/runs")).return_code:
        pass
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert (await box.exec("pgrep -f 'sleep [3]05'")).return_code == 1


def test_the_blocking_facade_works_too() -> None:
    with Sandbox({"rollbox": {"egress": "offline"}}, SandboxSpec(image=IMAGE)) as box:
        assert box.start().exec("echo a").stdout == "a\n"


async def test_a_host_that_is_killed_leaves_nothing(client: Client) -> None:
    program = await asyncio.create_subprocess_exec(
        sys.executable, "-c", HOST, IMAGE, env=os.environ.copy(), stdout=asyncio.subprocess.PIPE
    )
    assert program.stdout is not None
    made = (await program.stdout.readline()).decode().strip()
    program.send_signal(signal.SIGKILL)
    await program.communicate()
    while (await client.get(made)).state != "ended":  # noqa: ASYNC110 - nothing tells of it
        await asyncio.sleep(0.5)
    end = (await client.get(made)).end
    assert end is not None
    assert end.cause == "lease_expired"


async def test_what_is_no_option_is_refused_before_a_sandbox_is_made(client: Client) -> None:
    with pytest.raises(ValueError, match=r"sandbox.rollbox: memroy is none of checkpoint, cpu, "):
        sandbox({"memroy": "1Gi"})
    with pytest.raises(ValueError, match="provider_options: volumes is none of"):
        async with started(provider_options={"volumes": []}):
            pass
