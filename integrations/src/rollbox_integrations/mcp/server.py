"""The MCP server: lists the tools, checks arguments, tells progress, and says whose fault a failure was."""

from __future__ import annotations

import asyncio
import base64
import contextlib
from collections.abc import Awaitable, Mapping
from typing import Any, Final, TypeVar

import anyio
import mcp_types as types
from mcp import MCPError
from mcp.server import Server, ServerRequestContext
from pydantic import ValidationError

from rollbox import SandboxError, __version__
from rollbox.errors import InvalidArgument
from rollbox_integrations import outcome
from rollbox_integrations.mcp import catalogue
from rollbox_integrations.mcp.outputs import FaultOutput, Output
from rollbox_integrations.mcp.pictures import Shown
from rollbox_integrations.mcp.sandboxes import Sandboxes

_T = TypeVar("_T")
# Seconds between two notes of progress, and until the first.
_TICK_S: Final = 2.0
_INSTRUCTIONS: Final = (
    "Sandboxes for code that nobody has to trust. create_sandbox first; the other tools take its sandbox_id. A command "
    "or a cell that fails is a result. A result with isError says by `fault` whose fault it was: caller (change the "
    "arguments), workload (the code in the sandbox did it), capacity or platform (try again, or another sandbox)."
)


def server(sandboxes: Sandboxes) -> Server[Any]:
    """Return the server of these sandboxes."""
    tools = catalogue.tools(sandboxes.settings)
    listed = types.ListToolsResult(tools=[one.described(sandboxes.settings) for one in tools.values()])

    async def list_tools(
        context: ServerRequestContext[Any], params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        return listed

    async def call_tool(
        context: ServerRequestContext[Any], params: types.CallToolRequestParams
    ) -> types.CallToolResult:
        if (tool := tools.get(params.name)) is None:
            raise MCPError(types.INVALID_PARAMS, f"there is no tool {params.name!r}")
        try:
            given = _checked(tool, params.arguments or {})
            limit_s = getattr(given, "timeout", None) or getattr(given, "start_timeout", None)
            return _result(await _told_of(context, tool.call(sandboxes, given), tool.title, limit_s))
        except SandboxError as error:
            return _failure(error)

    return Server(
        "rollbox",
        version=__version__,
        title="rollbox sandboxes",
        instructions=_INSTRUCTIONS,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )


def _checked(tool: catalogue.Tool, arguments: Mapping[str, Any]) -> Any:  # noqa: ANN401 - an Input of the tool
    try:
        return tool.takes.model_validate(arguments)
    except ValidationError as error:
        wrong = "; ".join(f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors())
        raise InvalidArgument(f"arguments of {tool.name}: {wrong}") from error


async def _told_of(context: ServerRequestContext[Any], work: Awaitable[_T], what: str, limit_s: float | None) -> _T:
    """Await work that may take long, and tell the client meanwhile that it goes on."""
    telling = asyncio.create_task(_tell(context, what, limit_s), name=f"rollbox progress of {what}")
    try:
        return await work
    finally:
        telling.cancel()


async def _tell(context: ServerRequestContext[Any], what: str, limit_s: float | None) -> None:
    clock = asyncio.get_running_loop().time
    began = clock()
    # The client may be gone; that ends the call itself.
    with contextlib.suppress(anyio.ClosedResourceError, anyio.BrokenResourceError):
        while True:
            await asyncio.sleep(_TICK_S)
            gone_s = clock() - began
            await context.session.report_progress(gone_s, limit_s, f"{what}: {gone_s:.0f} s")


def _result(done: Output | Shown) -> types.CallToolResult:
    shown = done if isinstance(done, Shown) else Shown(done)
    pictures = [
        types.ImageContent(type="image", mime_type=one.mime, data=base64.b64encode(one.data).decode())
        for one in shown.pictures
    ]
    text = types.TextContent(type="text", text=shown.output.model_dump_json())
    return types.CallToolResult(content=[text, *pictures], structured_content=shown.output.model_dump(mode="json"))


def _failure(error: SandboxError) -> types.CallToolResult:
    told = FaultOutput(**outcome.fault(error))
    text = types.TextContent(type="text", text=outcome.sentence(error))
    return types.CallToolResult(content=[text], structured_content=told.model_dump(), is_error=True)
