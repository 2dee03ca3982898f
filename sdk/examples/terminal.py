"""A terminal: run a program on one, with a size, an echo and Ctrl-C.

A person has the same with `rollbox exec -it ID -- bash`.
"""

import asyncio
import sys

from rollbox import Sandbox

# Any image with a shell and stty; this one was made by `make demo`.
IMAGE = sys.argv[1] if len(sys.argv) > 1 else "localhost/rollbox/python:1"
PROGRAM = "test -t 0 && stty size; read name; stty size; echo hello $name; exec sleep 600"


async def main() -> None:
    """Start on a terminal of 80 by 24, resize it, type, and press Ctrl-C."""
    async with (
        await Sandbox.create(IMAGE, memory="512Mi", ttl=600) as sandbox,
        await sandbox.spawn(PROGRAM, terminal=(80, 24)) as process,
    ):
        lines = process.stdout.lines()
        print("rows and columns:", (await anext(lines)).rstrip())
        await process.resize(132, 50)
        await process.stdin.write("you\n")
        print([(await anext(lines)).rstrip() for _ in range(3)])
        await process.stdin.write("\x03")
        result = await process.wait()
        print(result.end, result.signal_name)


asyncio.run(main())
