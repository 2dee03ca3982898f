"""Maths as a tool: 16 samples of a group, each with a Python that stays for all calls of its sample."""

import asyncio
import sys

from rollbox import Sandbox, SandboxGroup

# Any image with Python; this one was made by `make demo`.
IMAGE = sys.argv[1] if len(sys.argv) > 1 else "localhost/rollbox/python:1"
SAMPLES = 16


async def calls(sandbox: Sandbox, seed: int) -> str | None:
    """What a model would write, turn by turn; an error is told to it, and it goes on."""
    async with await sandbox.interpreter() as python:
        await python.run(f"import math\nn = {seed} + 10")
        wrong = await python.run("math.factorial(m)", timeout=10)
        if wrong.error is not None and wrong.error.name == "NameError":
            await python.run("m = n")
        return (await python.run("sum(map(int, str(math.factorial(m))))", timeout=10)).text


async def main() -> None:
    """Run all samples at once."""
    async with await SandboxGroup.create(IMAGE, n=SAMPLES, memory="256Mi", cpu=(0.05, 1), ttl=600) as group:
        answers = await asyncio.gather(*(calls(sandbox, seed) for seed, sandbox in enumerate(group)))
    print(*answers)


asyncio.run(main())
