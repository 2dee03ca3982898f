"""Processes: start one, talk to it, leave it running, come back to it."""

import asyncio
import sys

from rollbox import Sandbox

# Any image with a shell; this one was made by `make demo`.
IMAGE = sys.argv[1] if len(sys.argv) > 1 else "localhost/rollbox/python:1"


async def main() -> None:
    """Read output as it comes, write input, attach again from an offset."""
    async with await Sandbox.create(IMAGE, memory="512Mi", ttl=600) as sandbox:
        async with await sandbox.spawn("for i in 1 2 3; do echo line $i; sleep 0.1; done") as process:
            async for line in process.stdout.lines():
                print(line)
            print((await process.wait()).exit_code)

        async with await sandbox.spawn(["cat"]) as process:
            await process.stdin.write("to cat and back")
            await process.stdin.write_eof()
            print((await process.stdout.read()).decode())

        async with await sandbox.spawn("echo started; exec sleep 600") as server:
            name = server.detach()
        async with await sandbox.processes.attach(name) as server:
            print((await server.stdout.next_bytes()).decode().strip())
            await server.kill()
            print((await server.wait()).end)


asyncio.run(main())
