"""What users do, once each and some of it many times: so that every panel has something to show."""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import Any

from rollbox import Client, Sandbox
from rollbox.errors import SandboxError, SandboxNotFound
from tests.e2e.test_lazy_starts import Place, image

SMALL: dict[str, Any] = {"cpu": (0.001, 1), "memory": ("32Mi", "128Mi"), "start_timeout": 240.0}
POOL = "panels"


async def load(place: Place, for_s: float) -> None:
    """Runs for about so long, and leaves no sandbox behind."""
    async with Client(place.stack.url, place.stack.api_key) as client:
        await client.set_quota(place.stack.owner, sandboxes=500)
        name = image(place)
        pool = await client.set_pool(POOL, name, 2, cpu=SMALL["cpu"], memory=SMALL["memory"])
        try:
            await _once(client, place, name)
            until_s = time.monotonic() + for_s
            while time.monotonic() < until_s:
                async with await client.create(name, **SMALL) as sandbox:
                    await _commands(sandbox)
        finally:
            await client.remove_pool(pool.name)
            await client.remove_quota(place.stack.owner)


async def _once(client: Client, place: Place, name: str) -> None:
    """What need not happen often."""
    await client.prefetch([image(place)])
    with contextlib.suppress(SandboxError):
        await client.create(f"{place.upstream}/plain/nothing:1", **SMALL)
    # Nothing gives so much, so it waits for room, or is refused, by what the cluster has.
    with contextlib.suppress(SandboxError):
        await client.create(name, cpu=(1000, 1000), start_timeout=5.0)
    async with await client.create(image(place), **SMALL) as cold:
        await _commands(cold)
        await _files(cold)
        await _port(cold)
        await cold.commit("panels/kept", idempotency_key=f"panels-{cold.id}")
    with contextlib.suppress(SandboxNotFound):
        await client.get("sbx-nothing")
    await _out_of_memory(client, name)
    await client.remove_image("panels/kept")


async def _commands(sandbox: Sandbox) -> None:
    await asyncio.gather(*(sandbox.exec(f"echo {number}; exit {number % 2}") for number in range(8)))
    await sandbox.exec("sleep 10", timeout=0.2)
    async with await sandbox.spawn("cat") as process:
        await process.stdin.write(b"hello")
        await process.stdin.write_eof()
        await process.wait()


async def _files(sandbox: Sandbox) -> None:
    await sandbox.files.write("/tmp/data", b"x" * (1 << 20))
    await sandbox.files.read("/tmp/data")
    await sandbox.files.list("/tmp")


async def _port(sandbox: Sandbox) -> None:
    server = await sandbox.spawn("busybox httpd -f -p 8000 -h /tmp")
    await sandbox.ports.wait(8000)
    async with await sandbox.ports.connect_tcp(8000) as stream:
        await stream.write(b"GET /data HTTP/1.0\r\n\r\n")
        while await stream.read():
            pass
    await server.kill()


async def _out_of_memory(client: Client, name: str) -> None:
    sandbox = await client.create(name, **SMALL)
    await sandbox.exec("dd if=/dev/zero of=/dev/null bs=512M count=1", timeout=30)
    with contextlib.suppress(SandboxError):
        await sandbox.delete()
