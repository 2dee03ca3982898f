"""Processes: start one, write to it, send it a signal, leave it running, attach to it again, list what ran."""

import asyncio
import signal
import sys

from rollbox import Sandbox

# Any image with a shell; this one was made by `make demo`.
IMAGE = sys.argv[1] if len(sys.argv) > 1 else "localhost/rollbox/python:1"


async def main() -> None:
    """Read output as it comes, write input, send a signal, attach again, list them all."""
    async with await Sandbox.create(IMAGE, memory="512Mi", ttl=600) as sandbox:
        async with await sandbox.spawn("for i in 1 2 3; do echo line $i; sleep 0.1; done") as process:
            async for line in process.stdout.lines():
                print(line)
            print((await process.wait()).exit_code)

        async with await sandbox.spawn(["cat"]) as process:
            await process.stdin.write("to cat and back")
            await process.stdin.write_eof()
            print((await process.stdout.read()).decode())

        polite = "trap 'echo asked to end; exit 5' TERM; echo ready; while :; do sleep 0.1; done"
        async with await sandbox.spawn(polite) as process:
            lines = process.stdout.lines()
            print(await anext(lines))
            await process.signal(signal.SIGTERM)
            print(await anext(lines), (await process.wait()).exit_code)

        async with await sandbox.spawn("echo started; exec sleep 600") as server:
            name = server.detach()
        async with await sandbox.processes.attach(name) as server:
            print((await server.stdout.next_bytes()).decode().strip())
            await server.kill()
            print((await server.wait()).end)

        listed = await sandbox.processes.list()
        print(len(listed), "on record,", sum(item.running for item in listed), "running")


asyncio.run(main())
