"""The command line as a user runs it: a process of its own against the running product."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import Any

from tests.support.stack import Product


async def started(stack: Product, *arguments: str) -> asyncio.subprocess.Process:
    """Start the CLI, its three streams as pipes."""
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "rollbox",
        *arguments,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "ROLLBOX_URL": stack.url, "ROLLBOX_API_KEY": stack.api_key, "NO_COLOR": "1"},
    )


async def rollbox(stack: Product, *arguments: str, stdin: bytes = b"") -> tuple[int, bytes, str]:
    """Run the CLI; exit status, stdout, stderr."""
    process = await started(stack, *arguments)
    out, err = await process.communicate(stdin)
    assert process.returncode is not None
    return process.returncode, out, err.decode()


async def answer(stack: Product, *arguments: str) -> Any:
    """The JSON that the CLI prints."""
    status, out, err = await rollbox(stack, *arguments, "--json")
    assert status == 0, err
    return json.loads(out)
