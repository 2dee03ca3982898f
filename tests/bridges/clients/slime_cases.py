"""What slime does with its sandbox of E2B, a case a function: `slime_cases.py FILE`, its `slime/agent/sandbox.py`."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import sys
import tempfile
from pathlib import Path

import e2b

spec = importlib.util.spec_from_file_location("slime_sandbox", sys.argv[1])
slime = importlib.util.module_from_spec(spec)
spec.loader.exec_module(slime)
IMAGE = os.environ["IMAGE"]
WITHIN_S = 300
LIVES_S = 300


def made(image=IMAGE):
    return slime.E2BSandbox(image, timeout=LIVES_S)


async def commands(sandbox):
    seen = await sandbox.exec("echo $A; pwd; echo e >&2; exit 3", env={"A": "1"})
    try:
        await sandbox.exec("exit 4", check=True)
    except RuntimeError as error:
        return {"seen": seen, "failed": "exit=4" in str(error), "id": sandbox.sandbox_id.startswith("sb-")}


async def files(sandbox):
    with tempfile.NamedTemporaryFile() as file:
        file.write(b"of the host")
        file.flush()
        await sandbox.write_file("/tmp/s/path", Path(file.name))
    await sandbox.write_file("/tmp/s/text", "h\u00e9")
    await sandbox.write_file("/tmp/s/bytes", b"\x00\xff")
    size = await sandbox.exec("stat -c %s /tmp/s/bytes")
    read = [await sandbox.read_file(f"/tmp/s/{name}") for name in ("path", "text", "none")]
    return {"read": read, "size": size[1].strip()}


async def detached(sandbox):
    """A long command, which is started apart and asked for until it is over."""
    await sandbox.exec("mkdir -p /work /home/root")
    ran = {"time_budget_sec": 60, "tag": "case", "workdir": "/work"}
    code, said = await slime.exec_and_wait(sandbox, cmd="pwd; (exit 0)", want_output=True, **ran)
    failed, tail = await slime.exec_and_wait(sandbox, cmd="echo broken; (exit 5)", **ran)
    return {"seen": [code, said], "failed": [failed, tail]}


async def user(sandbox):
    """The user of agents, where the image has what slime calls for it; `git` is the one thing that this one has not."""
    await sandbox.write_file("/usr/bin/git", "#!/bin/sh\nexit 0\n")
    await sandbox.exec("chmod +x /usr/bin/git", check=True)
    await slime.ensure_agent_user(sandbox, "/work")
    return {"owner": (await sandbox.exec("stat -c %U /work", user="agent"))[1].strip()}


async def ended(sandbox):
    """A sandbox that has ended is asked once: what it says, slime does not try again."""
    mine, asked = made(), 0
    async with mine:
        await e2b.AsyncSandbox.kill(mine.sandbox_id)

        async def ask():
            nonlocal asked
            asked += 1
            return await mine._sb.commands.run("true")

        try:
            await mine._rpc_retry("exec", ask)
        except Exception as error:
            words = [one for one in ("does not exist", "STOPPED state") if one in str(error)]
            return {"asked": asked, "words": words, "transient": mine._is_transient_rpc_error(error)}


async def no_image(sandbox):
    """A create of an image that there is not fails once, too."""
    mine, asked = made(IMAGE.rpartition("/")[0] + "/no-such-image:1"), 0
    create = e2b.AsyncSandbox.create

    async def ask():
        nonlocal asked
        asked += 1
        return await create(timeout=LIVES_S, metadata={mine.image_metadata_key: mine.image})

    try:
        await mine._rpc_retry("create", ask)
    except Exception as error:
        return {"asked": asked, "says": "does not exist" in str(error)}


CASES = (commands, files, detached, user, ended, no_image)


async def main() -> None:
    async with made() as sandbox:
        for case in CASES:
            try:
                told = {"case": case.__name__, "saw": await asyncio.wait_for(case(sandbox), WITHIN_S)}
            except Exception as error:  # told to the test
                told = {"case": case.__name__, "error": [type(error).__name__, str(error)]}
            print(json.dumps(told), flush=True)
        name = sandbox.sandbox_id
    left = [one.sandbox_id for one in await e2b.AsyncSandbox.list().next_items() if one.sandbox_id == name]
    print(json.dumps({"case": "left", "saw": {"left": left}}), flush=True)


asyncio.run(main())
