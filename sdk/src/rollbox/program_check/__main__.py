"""`python -m rollbox.program_check FILE`: the look as a pod of `rollbox doctor --cluster` has it.

The environment has the gateway's address (`ROLLBOX_URL`), the file of API keys (`KEYS`; its first key is taken) and the
image of the sandbox (`IMAGE`). The file gets the findings as JSON.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Mapping
from pathlib import Path

from rollbox.client import Client
from rollbox.egress_check import Found
from rollbox.egress_check.__main__ import first_key, fitting
from rollbox.program_check.sandboxed import check


async def findings(environ: Mapping[str, str], key: str) -> list[Found]:
    """What is found."""
    async with Client(environ["ROLLBOX_URL"], key) as client:
        return await check(client, environ["IMAGE"])


def main(arguments: list[str]) -> int:
    """Returns the exit status: 0 where it was looked at, whatever was found."""
    key = first_key(Path(os.environ["KEYS"]).read_text())
    Path(arguments[0]).write_text(fitting(asyncio.run(findings(os.environ, key))))
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
