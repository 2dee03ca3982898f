"""`rollbox mcp` as a program of its own, as a client starts it, and calls of its tools."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp_types import CallToolResult

IMAGE = os.environ["ROLLBOX_TEST_IMAGE"]
# Where the registry of the others is, so that it is one that answers.
NO_IMAGE = IMAGE.rpartition("/")[0] + "/no-such-image:1"
LABELS = {"rollbox.host": "mcp"}
ROLLBOX = str(Path(sys.executable).with_name("rollbox"))
WORDS = ["mcp", "--image", IMAGE]
NAMED = {name: value for name, value in os.environ.items() if name.startswith("ROLLBOX_")}


@dataclass
class Calls:
    """A client, and one sandbox of its server."""

    client: Client
    sandbox_id: str = ""

    async def tried(self, name: str, **arguments: Any) -> CallToolResult:
        """The whole result of a tool of the sandbox."""
        return await self.client.call_tool(name, {"sandbox_id": self.sandbox_id, **arguments})

    async def __call__(self, name: str, **arguments: Any) -> dict[str, Any]:
        """What a tool of the sandbox returns; its text says the same."""
        result = await self.tried(name, **arguments)
        assert not result.is_error, result.content
        assert type(result.structured_content) is dict
        return result.structured_content

    async def fault(self, name: str, **arguments: Any) -> tuple[str, str, bool, str]:
        """What a tool says that has failed: code, fault, whether to mask, and why."""
        result = await self.tried(name, **arguments)
        assert result.is_error
        told = result.structured_content
        text = getattr(result.content[0], "text", "")
        assert text.startswith(
            f"{told['code']} ({told['fault']}; {'mask' if told['mask_sample'] else 'score'} the sample)"
        )
        return told["code"], told["fault"], told["mask_sample"], told["why"]


@asynccontextmanager
async def served(*options: str, mode: str = "auto") -> AsyncIterator[Client]:
    """A client of a server that it has started."""
    parameters = StdioServerParameters(command=ROLLBOX, args=[*WORDS, *options], env=NAMED)
    async with Client(stdio_client(parameters), mode=mode) as client:
        yield client


@asynccontextmanager
async def sandboxed(*options: str, **arguments: Any) -> AsyncIterator[Calls]:
    """A client with a sandbox."""
    async with served(*options) as client:
        yield await created(client, **arguments)


async def created(client: Client, **arguments: Any) -> Calls:
    """Have a server make a sandbox."""
    made = await client.call_tool("create_sandbox", {"memory_mb": 512, **arguments})
    assert not made.is_error, made.content
    return Calls(client, made.structured_content["sandbox_id"])
