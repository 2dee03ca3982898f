"""Prime's bridge on the product: a restart under open streams, sessions, clients that hang up, the platform's words."""

from __future__ import annotations

import asyncio
import hashlib
import io
import json
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from google.protobuf import json_format

from rollbox import Client
from rollbox_bridges.connect.framing import enveloped
from rollbox_bridges.prime.messages import SERVICE, SESSION
from tests.bridges.running import bridge, command_of
from tests.bridges.test_prime_clients import environment
from tests.support.images import IMAGE
from tests.support.prime_speaking import Speaker
from tests.support.stack import Product, free_port

UUID = "11111111-2222-4333-8444-555555555555"


async def test_a_restart_cuts_streams_and_live_processes_go_on(stack: Product, tmp_path: Path) -> None:
    listen = f"127.0.0.1:{free_port()}"
    async with bridge(stack, listen=listen, protocol="prime") as url:
        client = await asyncio.create_subprocess_exec(
            *command_of("prime-sandboxes-0.5.1", "prime_restart.py", ""),
            env=environment(url, stack.api_key, tmp_path),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        assert client.stdout is not None
        assert json.loads(await client.stdout.readline())["pid"] > 0
    async with bridge(stack, listen=listen, protocol="prime"):
        out, _ = await client.communicate(b"\n")
    assert json.loads(out)["saw"] == {"cut": "APIError", "write": "APIError", "code": 5, "out": "on", "left": False}


def asked(command: str, **more: Any) -> dict[str, Any]:
    return {"command": {"cmd": "/bin/bash", "args": ["-c", command]}, **more}


async def test_a_session_has_one_command(stack: Product) -> None:
    async with bridge(stack, protocol="prime") as url, aiohttp.ClientSession() as http:
        speaker = Speaker(url, http, key=stack.api_key)
        await speaker.create(docker_image=IMAGE)
        for _ in range(2):
            told = await speaker.stream("Start", "StartRequest", asked("echo $$ >> /tmp/n; exit 4", session_uuid=UUID))
            assert told[-2]["end"]["exitCode"] == 4
        other = await speaker.stream("Start", "StartRequest", asked("true", session_uuid=UUID))
        assert json.loads(other[-1])["error"]["code"] == "failed_precondition"
        again = await speaker.stream("Connect", "ConnectRequest", {"session": {"sessionUuid": UUID}})
        assert [*again[0], again[1]["end"]["exitCode"], again[2]] == ["start", 4, "{}"]
        body = json.dumps({"command": "wc -l < /tmp/n"}).encode()
        assert (await speaker.within("POST", "exec", body)).json["stdout"].strip() == "1"
        assert (await speaker.control("DELETE", f"/sandbox/{speaker.made['id']}")).status == 200


@pytest.mark.parametrize("way", ["Start", "exec"])
async def test_a_client_that_hangs_up_ends_its_command(stack: Product, client: Client, way: str) -> None:
    async with bridge(stack, protocol="prime") as url, aiohttp.ClientSession() as http:
        speaker = Speaker(url, http, key=stack.api_key)
        await speaker.create(docker_image=IMAGE)
        sandbox = await client.connect(speaker.made["id"])
        command = "touch /tmp/began; sleep 600; true"
        call = asyncio.create_task(_call(speaker, way, command))
        while not await sandbox.files.exists("/tmp/began"):
            pass
        call.cancel()
        while any(one.running for one in await sandbox.processes.list()):
            pass
        listed = await sandbox.exec("cat /proc/[0-9]*/cmdline | tr '\\0' ' '")
        assert "sleep 600" not in listed.stdout.replace("[0-9]*", "")
        await sandbox.delete()


async def _call(speaker: Speaker, way: str, command: str) -> None:
    if way == "exec":
        await speaker.within("POST", "exec", json.dumps({"command": command}).encode())
        return
    data = json_format.ParseDict(asked(command), SESSION["StartRequest"]()).SerializeToString()
    kind = {"Content-Type": "application/connect+proto"}
    await speaker.within("POST", f"{SERVICE}/Start", enveloped(data), **kind)


async def test_a_deleted_sandbox_ends_a_stream_as_gone(stack: Product, client: Client) -> None:
    async with bridge(stack, protocol="prime") as url, aiohttp.ClientSession() as http:
        speaker = Speaker(url, http, key=stack.api_key)
        await speaker.create(docker_image=IMAGE)
        sandbox = await client.connect(speaker.made["id"])
        stream = asyncio.create_task(speaker.stream("Start", "StartRequest", asked("touch /tmp/began; sleep 600")))
        while not await sandbox.files.exists("/tmp/began"):
            pass
        await sandbox.delete()
        error = json.loads((await stream)[-1])["error"]
        assert (error["code"], "[deleted, fault: caller, mask_sample: true]" in error["message"]) == ("not_found", True)


async def test_a_large_file_goes_up_and_down(stack: Product) -> None:
    async with bridge(stack, protocol="prime") as url, aiohttp.ClientSession() as http:
        speaker = Speaker(url, http, key=stack.api_key)
        await speaker.create(docker_image=IMAGE)
        data = bytes(range(256)) * 2**18
        form = aiohttp.FormData()
        form.add_field("file", io.BytesIO(data), filename="big")
        assert (await speaker.within("POST", "upload?path=/tmp/big", form)).json["size"] == len(data)
        came = (await speaker.within("GET", "download?path=/tmp/big")).body
        assert hashlib.sha256(came).hexdigest() == hashlib.sha256(data).hexdigest()
        assert (await speaker.within("GET", "read-file?path=/tmp/big")).status == 413
        assert (await speaker.control("DELETE", f"/sandbox/{speaker.made['id']}")).status == 200
