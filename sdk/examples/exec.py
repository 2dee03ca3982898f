"""Commands: user and directory, input, timeout, how much of the output is kept, and retries that run nothing twice."""

import asyncio
import sys

from rollbox import Sandbox

# Any image with a shell; this one was made by `make demo`.
IMAGE = sys.argv[1] if len(sys.argv) > 1 else "localhost/rollbox/python:1"


async def main() -> None:
    """Run commands with every option there is."""
    async with await Sandbox.create(IMAGE, memory="512Mi", ttl=600) as sandbox:
        command = "pwd; echo $SEED; id -u; umask; cat"
        result = await sandbox.exec(command, cwd="/tmp", env={"SEED": "7"}, user="1000", umask=0o077, stdin="its input")
        print(result.stdout.splitlines())

        late = await sandbox.exec("echo so far; sleep 600", timeout=3)
        print(late.end, late.stdout.strip())

        much = await sandbox.exec("seq 100000", max_output_bytes=8, keep="head")
        print(much.stdout.split(), much.stdout_truncated, much.stdout_total_bytes)

        for _ in range(2):
            once = await sandbox.exec("date >> /tmp/ran; wc -l < /tmp/ran", exec_id="only-once")
            print(once.stdout.strip(), once.replayed)


asyncio.run(main())
