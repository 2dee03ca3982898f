"""The TypeScript SDK's clients, as npm serves them: that of the current revision, and that which most hosts have."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
from pathlib import Path

import pytest

from on_mcp.serving import ROLLBOX, WORDS
from rollbox import Client

CLIENTS = Path(__file__).with_name("clients")
# Modules of JavaScript are looked for from where the script is.
NPM = Path(sys.prefix) / "npm"

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.mark.parametrize("client", ["v1", "v2"])
async def test_a_client_of_typescript_uses_the_tools(platform: Client, client: str) -> None:
    for source in ("cases.mjs", f"{client}.mjs"):
        shutil.copy(CLIENTS / source, NPM / source)
    program = await asyncio.create_subprocess_exec(
        "node", str(NPM / f"{client}.mjs"), ROLLBOX, *WORDS, env=os.environ.copy(), stdout=asyncio.subprocess.PIPE
    )
    told, _ = await program.communicate()
    assert program.returncode == 0
    saw = json.loads(told)
    assert (saw["server"], len(saw["tools"])) == ("rollbox", 13)
    assert (saw["command"], saw["cell"]) == ([3, "out\n", "err\n"], "42")
    assert saw["failed"] == [True, "file_not_found", False]
    assert (saw["progress"], saw["cancelled"]) == (True, True)
