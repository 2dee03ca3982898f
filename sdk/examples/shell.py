"""A shell that keeps directory and variables; every command has its own result."""

import asyncio
import sys

from rollbox import Sandbox

# Any image with a shell; this one was made by `make demo`.
IMAGE = sys.argv[1] if len(sys.argv) > 1 else "localhost/rollbox/python:1"


async def main() -> None:
    """Run commands one after the other, one of them for too long."""
    async with await Sandbox.create(IMAGE, memory="512Mi", ttl=600) as sandbox, await sandbox.shell() as shell:
        await shell.run("cd /tmp && export NAME=rollbox")
        result = await shell.run("pwd; echo $NAME; echo trouble >&2; false")
        print(result.exit_code, result.stdout.split(), result.stderr.strip())
        late = await shell.run("sleep 600", timeout=0.5)
        print(late.end, (await shell.run("echo $NAME is still here")).stdout.strip())


asyncio.run(main())
