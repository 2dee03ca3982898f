"""The log of a sandbox: what the command has written that was given to its create."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Final

from aiohttp import web

from rollbox import ExecSummary, OutputStream, Sandbox
from rollbox_bridges.prime.calls import Call
from rollbox_bridges.prime.creations import START_ID

# Of each of its two outputs.
_MOST_BYTES: Final = 2**20
_WITHIN_S: Final = 10.0


async def get(call: Call) -> web.StreamResponse:
    """Tell the last of both outputs, first the one and then the other."""
    sandbox = (await call.session()).sandbox
    found = [one for one in await sandbox.processes.list() if one.exec_id == START_ID]
    return web.json_response({"logs": await _written(sandbox, found[0]) if found else ""})


async def _written(sandbox: Sandbox, one: ExecSummary) -> str:
    begins = [max(0, total - _MOST_BYTES) for total in (one.stdout_bytes, one.stderr_bytes)]
    process = await sandbox.processes.attach(one.exec_id, stdout_offset=begins[0], stderr_offset=begins[1])
    process.detach()
    try:
        sizes = (one.stdout_bytes - begins[0], one.stderr_bytes - begins[1])
        streams = (process.stdout, process.stderr)
        parts = await asyncio.gather(*(_read(*pair) for pair in zip(streams, sizes, strict=True)))
    finally:
        await process.aclose()
    return b"".join(parts).decode("utf-8", "replace")


async def _read(stream: OutputStream, size: int) -> bytes:
    """Read what was there when it was listed; what the sandbox has dropped meanwhile is not waited for."""
    data = bytearray()
    with suppress(TimeoutError):
        while len(data) < size and (part := await stream.next_bytes(timeout=_WITHIN_S)):
            data += part
    return bytes(data[:size])
