"""Usage: what a sandbox uses at one moment, as seen from inside."""

import asyncio
import sys

from rollbox import Sandbox

# Any image with Python; this one was made by `make demo`.
IMAGE = sys.argv[1] if len(sys.argv) > 1 else "localhost/rollbox/python:1"
HUNGRY = "held = bytearray(64 << 20); print('full', flush=True); input()"


async def main() -> None:
    """Fetch the usage before and while a program holds 64 MiB."""
    async with await Sandbox.create(IMAGE, memory="512Mi", ttl=600) as sandbox:
        before = await sandbox.usage()
        async with await sandbox.spawn(["python3", "-c", HUNGRY]) as process:
            await anext(process.stdout.lines())
            now = await sandbox.usage()
        print(f"{now.cpu_ms:.0f} ms on processors, {now.memory_bytes >> 20} MiB of memory")
        print("memory grew by 60 MiB and more:", now.memory_bytes - before.memory_bytes >= 60 << 20)
        print("processes more:", now.processes - before.processes)


asyncio.run(main())
