"""The first program: create a sandbox, run a command, read its result, leave nothing behind."""

import asyncio
import sys

from rollbox import Sandbox, SandboxError

# Any image with Python; this one was made by `make demo`.
IMAGE = sys.argv[1] if len(sys.argv) > 1 else "localhost/rollbox/python:1"


async def main() -> None:
    """Run a command that works and one that fails."""
    async with await Sandbox.create(IMAGE, memory="512Mi", ttl=600) as sandbox:
        result = await sandbox.exec(["python3", "-c", "print(6 * 7)"], timeout=10)
        print(result.stdout, result.exit_code, f"{result.run_ms:.1f} ms")
        try:
            await sandbox.exec("exit 3", check=True)
        except SandboxError as error:
            print(error.code, "mask this sample" if error.mask_sample else "the code's own fault")


asyncio.run(main())
