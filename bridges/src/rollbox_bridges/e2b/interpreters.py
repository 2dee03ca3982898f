"""The code interpreter's port: cells as lines of JSON, and contexts."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import Any, Final

from aiohttp import web

from rollbox import Cell, CellOutput, Interpreter
from rollbox_bridges.e2b import cells, jsonbody
from rollbox_bridges.e2b.contexts import Context
from rollbox_bridges.e2b.sessions import Session
from rollbox_bridges.e2b.words import Refusal, unsupported

_ALIVE_S: Final = 5.0
_MOST_CODE_BYTES: Final = 2**23
_EXECUTE: Final = frozenset({"code", "context_id", "language", "env_vars"})
_CREATE: Final = frozenset({"language", "cwd"})
_SET: Final = """import os as __rbx_os, json as __rbx_json
__rbx_new = __rbx_json.loads({})
__rbx_old = {{name: __rbx_os.environ.get(name) for name in __rbx_new}}
__rbx_os.environ.update(__rbx_new)"""
_UNSET: Final = """for __rbx_name, __rbx_value in __rbx_old.items():
    __rbx_os.environ.pop(__rbx_name, None)
    if __rbx_value is not None: __rbx_os.environ[__rbx_name] = __rbx_value
del __rbx_new, __rbx_old, __rbx_os, __rbx_json"""
_END: Final = object()


async def serve(request: web.Request, session: Session) -> web.StreamResponse:
    """Serve a request to the port.

    Raises:
        Refusal: it is malformed, or there is nothing of this name.
        SandboxError: of the sandbox.
    """
    contexts = session.contexts
    match request.method, request.path.strip("/").split("/"):
        case "GET", ["health"]:
            return web.json_response("OK")
        case "POST", ["execute"]:
            return await _execute(request, session)
        case "POST", ["contexts"]:
            body = await jsonbody.read(request, _CREATE)
            return web.json_response((await contexts.create(body.get("language"), body.get("cwd"))).to_json())
        case "GET", ["contexts"]:
            return web.json_response([one.to_json() for one in contexts.list()])
        case "POST", ["contexts", name, "restart"]:
            await contexts.find(name).interpreter.restart()
            return web.json_response(None)
        case "DELETE", ["contexts", name]:
            await contexts.remove(name)
            return web.json_response(None)
    raise Refusal(404, f"the code interpreter has no {request.method} {request.path}")


async def _execute(request: web.Request, session: Session) -> web.StreamResponse:
    body = await jsonbody.read(request, _EXECUTE, _MOST_CODE_BYTES)
    code = body.get("code")
    if not isinstance(code, str):
        raise Refusal(400, "code is not text")
    context = await _context(session, body)
    response = web.StreamResponse(headers={"Content-Type": "application/x-ndjson"})
    async with _variables(context, body.get("env_vars")):
        await response.prepare(request)
        await _told(response, context.interpreter, code)
    await response.write_eof()
    return response


async def _context(session: Session, body: dict[str, Any]) -> Context:
    name, language = body.get("context_id"), body.get("language")
    if name is not None and language is not None:
        raise Refusal(400, "only one of context_id and language can be given")
    if name is None:
        return await session.contexts.default(language)
    if not isinstance(name, str):
        raise Refusal(400, f"context_id {name!r} is not text")
    return session.contexts.find(name)


async def _told(response: web.StreamResponse, interpreter: Interpreter, code: str) -> None:
    """Run a cell, and write its lines; a caller that goes away interrupts it."""
    lines = cells.Lines()
    async with aclosing(interpreter.stream(code)) as events:
        async for event in _or_alive(events):
            if event is None:
                await response.write(cells.keepalive())
            elif isinstance(event, Cell):
                await response.write(lines.end(event))
            elif isinstance(event, CellOutput):
                if line := lines.output(event):
                    await response.write(line)
            else:
                await response.write(lines.result(event))


async def _or_alive(events: AsyncIterator[Any]) -> AsyncIterator[Any]:
    """The events, and None each time that none has come for a while."""
    step: asyncio.Task[Any] | None = None
    try:
        while True:
            step = step or asyncio.ensure_future(anext(events, _END))
            done, _ = await asyncio.wait([step], timeout=_ALIVE_S)
            if not done:
                yield None
                continue
            event, step = step.result(), None
            if event is _END:
                return
            yield event
    finally:
        if step is not None:
            step.cancel()
            await asyncio.wait([step])


@asynccontextmanager
async def _variables(context: Context, variables: Any) -> AsyncIterator[None]:  # noqa: ANN401 - JSON
    """Have one cell see variables of its own, and no other."""
    if not variables:
        yield
        return
    if not isinstance(variables, dict) or not all(isinstance(one, str) for one in variables.values()):
        raise Refusal(400, "env_vars is not an object of texts")
    if context.language != "python":
        raise unsupported("env_vars of a cell that is no Python", "Give them to the sandbox.")
    async with context.turn:
        await context.interpreter.run(_SET.format(json.dumps(json.dumps(variables))))
        try:
            yield
        finally:
            await context.interpreter.run(_UNSET)
