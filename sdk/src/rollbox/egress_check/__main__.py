"""`python -m rollbox.egress_check FILE`: the check as a pod of `rollbox doctor --cluster` runs it.

The environment has the gateway's address (`ROLLBOX_URL`), the file of API keys (`KEYS`; its first key is taken), the
image of the sandbox (`IMAGE`), what must work (`PROBE`, HOST:PORT) and what must not (`INSIDE`, a JSON object of names
and `[host, port]`). The file gets the findings as JSON.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Final

from rollbox.client import Client
from rollbox.egress_check.judged import Found
from rollbox.egress_check.sandboxed import check
from rollbox.egress_check.tries import Place, place
from rollbox.errors import SandboxError

# Kubernetes keeps 4,096 bytes of what a pod tells at its end.
MOST_BYTES: Final = 4_000
CUT_CHARS: Final = 60


def first_key(lines: str) -> str:
    """The first key of a file with lines of `owner:key`, or `owner:key,owner:key`."""
    return lines.splitlines()[0].partition(",")[0].partition(":")[2]


async def findings(environ: Mapping[str, str], key: str) -> list[Found]:
    """What the check finds."""
    inside = [Place(name, host, port) for name, (host, port) in json.loads(environ.get("INSIDE") or "{}").items()]
    probe = place("allowed host", environ["PROBE"]) if environ.get("PROBE") else None
    async with Client(environ["ROLLBOX_URL"], key) as client:
        try:
            return await check(client, environ["IMAGE"], probe=probe, inside=inside)
        except SandboxError as error:
            return [Found("", False, f"not tried: {error.detail}", error.hint)]


def fitting(found: list[Found]) -> str:
    """Findings as JSON, with shorter details where they would not fit."""
    text = json.dumps([asdict(one) for one in found])
    if len(text) <= MOST_BYTES:
        return text
    return json.dumps([asdict(replace(one, detail=one.detail[:CUT_CHARS])) for one in found])


def main(arguments: list[str]) -> int:
    """Returns the exit status: 0 where it was tried, whatever was found."""
    key = first_key(Path(os.environ["KEYS"]).read_text())
    found = asyncio.run(findings(os.environ, key))
    Path(arguments[0]).write_text(fitting(found))
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
