"""`make demo`: start the product, run the HumanEval example against it, stop it, and check that nothing is left."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from tests.support.containers import left_containers
from tests.support.stack import IMAGE, running, why_no_engine

ROOT = Path(__file__).parent.parent.parent
EXAMPLE = ROOT / "sdk" / "examples" / "humaneval.py"


async def main(arguments: list[str]) -> int:
    """Run the example as a user would, with the address and key of a stack of our own; its exit status."""
    reason = why_no_engine()
    if reason is not None:
        print(f"The demo cannot run here: {reason}.", file=sys.stderr)
        return 1
    async with running() as stack:
        print(f"rollbox is up at {stack.url}", flush=True)
        environment = {**os.environ, "ROLLBOX_URL": stack.url, "ROLLBOX_API_KEY": stack.api_key}
        example = await asyncio.create_subprocess_exec(
            sys.executable,
            str(EXAMPLE),
            "--image",
            IMAGE,
            "--out",
            str(ROOT / "build" / "demo"),
            *arguments,
            env=environment,
        )
        status = await example.wait()
    left = await left_containers()
    print(f"rollbox is down; containers left behind: {len(left)}")
    return status or (1 if left else 0)


if __name__ == "__main__":
    raise SystemExit(asyncio.run(main(sys.argv[1:])))
