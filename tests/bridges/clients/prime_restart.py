"""A bridge that restarts under a live process of Prime's client: says where it is, and goes on at a line of input."""

from __future__ import annotations

import asyncio
import json
import os

from prime_sandboxes import AsyncSandboxClient, CreateSandboxRequest

LIVE = "while [ ! -e /tmp/go ]; do cat /tmp/mark; sleep 0.1; done 2>&-; exit 5"


async def name_of(call) -> str:
    """The class of the error of a call."""
    try:
        await call
    except Exception as error:  # what a user would see
        return type(error).__name__
    return "nothing"


async def main() -> None:
    client = AsyncSandboxClient()
    box = await client.create(CreateSandboxRequest(name="restart", docker_image=os.environ["IMAGE"]))
    await client.wait_for_creation(box.id)
    process = await client.open_process(box.id, LIVE)
    command = asyncio.create_task(name_of(client.execute_command(box.id, "touch /tmp/began; exec sleep 600")))
    while (await client.execute_command(box.id, "test -e /tmp/began")).exit_code:
        pass
    print(json.dumps({"pid": process.pid, "id": box.id}), flush=True)
    await asyncio.to_thread(input)
    cut = await command
    write = await name_of(process.write_stdin(b"x"))
    slept = await client.execute_command(box.id, "for p in /proc/[0-9]*; do tr '\\0' ' ' < $p/cmdline; echo; done")
    await client.upload_bytes(box.id, "/tmp/mark", b"on", "mark")
    # What is written while the client is not attached is not told again: so it says so until it is heard.
    out = await anext(process.stdout)
    await client.upload_bytes(box.id, "/tmp/go", b"", "go")
    code = await process.wait()
    told = {"cut": cut, "write": write, "code": code, "out": out.decode()[:2], "left": "sleep 600" in slept.stdout}
    await process.aclose()
    await client.delete(box.id)
    await client.aclose()
    print(json.dumps({"case": "restart", "saw": told}), flush=True)


asyncio.run(main())
