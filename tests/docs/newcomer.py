"""The tutorial as a newcomer runs it, block by block in one shell, with the time of each.

    python3 -m tests.docs.newcomer    # in a checkout; on a machine with nothing but the base system it builds all

It starts with `make ready` by the system's Python (`--built`: without), goes on with the one that this has made and its
own `rollbox up`, and stops that at the end. The log goes to build/tutorial.log.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from pathlib import Path

from tests.docs.blocks import ROOT, Block, blocks
from tests.support.stack import running

PAGE = "docs/tutorial.md"
LOG = ROOT / "build/tutorial.log"
OURS = ROOT / ".venv/bin/python"


async def timed(name: str, command: list[str], environment: dict[str, str]) -> None:
    """Run one step and log it.

    Raises:
        RuntimeError: it failed; the log has what it said.
    """
    began = time.monotonic()
    both = asyncio.subprocess.STDOUT
    pipe = asyncio.subprocess.PIPE
    child = await asyncio.create_subprocess_exec(*command, env=environment, cwd=ROOT, stdout=pipe, stderr=both)
    said, _ = await child.communicate()
    log(f"\n== {name}\n{said.decode()}-- {time.monotonic() - began:.1f} s")
    if child.returncode != 0:
        raise RuntimeError(f"{name}: exit status {child.returncode}")


def log(text: str) -> None:
    """To the terminal and to the log."""
    print(text, flush=True)
    with LOG.open("a") as file:
        file.write(text + "\n")


def command_of(block: Block) -> list[str]:
    """What runs a block; the id that a shell has got is known to the next one."""
    if block.language == "python":
        return [sys.executable, "-c", block.text]
    kept = ROOT / "build/tutorial.id"
    script = f'ID=$(cat {kept} 2>/dev/null || true)\n{block.text}\necho "$ID" > {kept}'
    return ["bash", "-euo", "pipefail", "-c", script]


async def set_up() -> None:
    """What the tutorial begins with."""
    LOG.parent.mkdir(exist_ok=True)
    LOG.unlink(missing_ok=True)
    first = next(one for one in blocks(PAGE) if one.kind == "shell")
    await timed(first.begins, ["make", "--no-print-directory", "ready"], dict(os.environ))


async def tutorial() -> None:
    """Run its steps."""
    found = [one for one in blocks(PAGE) if one.kind in ("shell", "program")]
    before = time.monotonic()
    async with running() as stack:
        log(f"\n== rollbox up\n-- {time.monotonic() - before:.1f} s")
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        environment = {**os.environ, **stack.environment(), "PATH": path}
        for block in found[1:]:
            if not block.begins.startswith("rollbox up"):
                await timed(f"{block.page}:{block.line} {block.begins}", command_of(block), environment)
    log(f"\nall commands but those of the set-up: {time.monotonic() - before:.0f} s")


def main() -> int:
    """Run the tutorial; 0 when every step worked."""
    if "--built" in sys.argv:
        asyncio.run(tutorial())
        return 0
    asyncio.run(set_up())
    # This program may have been begun by a Python that has none of its packages.
    return subprocess.run([OURS, "-m", "tests.docs.newcomer", "--built"], cwd=ROOT, check=False).returncode


if __name__ == "__main__":
    raise SystemExit(main())
