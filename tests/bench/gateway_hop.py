"""What the gateway adds to a direct connection to the sidecar, measured by one Rust client that alternates the two."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path

from rollbox import Client
from tests.bench.progress import doing
from tests.bench.record import Baseline, Record
from tests.support.images import IMAGE
from tests.support.stack import Stack
from tests.support.wire import token_of

ROOT = Path(__file__).parent.parent.parent
EXECS = 3000


async def measure(stack: Stack) -> list[Record]:
    """The records of this scenario. Cost: a build of the client the first time, then 10 s."""
    async with Client(stack.url, stack.api_key) as client, await client.create(IMAGE) as sandbox:
        doing("a build of the client, then its execs")
        address = stack.state_dir / "sandboxes" / sandbox.id / "agent.sock"
        command = ("setup/cargo.sh", "run", "--locked", "--quiet", "--release")
        process = await asyncio.create_subprocess_exec(
            *command,
            "--manifest-path",
            "gateway-rs/Cargo.toml",
            "--package",
            "gateway",
            "--example",
            "hop",
            cwd=ROOT,
            stdout=asyncio.subprocess.PIPE,
            env={
                **os.environ,
                "HOP_GATEWAY": stack.url.removeprefix("http://"),
                "HOP_SIDECAR": str(address),
                "HOP_SANDBOX": sandbox.id,
                "HOP_TOKEN": await token_of(stack, sandbox.id),
                "HOP_EXECS": str(EXECS),
            },
        )
        out, _ = await process.communicate()
    if process.returncode != 0:
        raise RuntimeError(f"the hop client ended with {process.returncode}")
    figures = json.loads(out)
    return [
        Record(
            "exec of true through the gateway, p50",
            figures["gateway"]["p50"],
            "ms",
            f"{EXECS} of each, alternating, one at a time, from one Rust client",
            Baseline(
                "the same client on a direct connection to the sidecar, p50",
                figures["direct"]["p50"],
                figures["direct"],
            ),
            distribution=figures["gateway"],
        )
    ]
