"""A bridge that restarts under a command of a published client: says where it is, and goes on at a line of input."""

from __future__ import annotations

import asyncio
import json
import os

from e2b import AsyncSandbox


async def name_of(call) -> str:
    """The class of the error of a call."""
    try:
        await call
    except Exception as error:  # what a user would see
        return type(error).__name__
    return "nothing"


async def main() -> None:
    sandbox = await AsyncSandbox.create(timeout=300)
    await sandbox.files.write("/tmp/kept", "kept")
    command = await sandbox.commands.run(
        "while [ ! -e /tmp/go ]; do sleep 0.1; done; echo on", background=True, timeout=0
    )
    waiting = asyncio.create_task(name_of(command.wait()))
    print(json.dumps({"pid": command.pid, "id": sandbox.sandbox_id}), flush=True)
    await asyncio.to_thread(input)
    cut = await waiting
    again = await sandbox.commands.connect(command.pid)
    await sandbox.files.write("/tmp/go", "")
    out = (await again.wait()).stdout
    told = {"cut": cut, "out": out, "kept": await sandbox.files.read("/tmp/kept"), "killed": await sandbox.kill()}
    print(json.dumps({"case": "restart", "saw": told}), flush=True)


assert os.environ["E2B_API_URL"]
asyncio.run(main())
