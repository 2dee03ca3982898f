"""Ports of a sandbox that are reached from outside, as the older generation asks for them: public ports of rollbox."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from aiohttp import web

from rollbox import SandboxRecord
from rollbox_bridges.bodies import json_object
from rollbox_bridges.prime.calls import Call
from rollbox_bridges.prime.sessions import Session
from rollbox_bridges.prime.words import Refusal, unsupported

_FIELDS: Final = frozenset({"port", "name", "protocol"})
_MOST_PORT: Final = 65_535
_ID: Final = "port-"


async def expose(call: Call) -> web.StreamResponse:
    """Let anyone reach a port by HTTP."""
    body = await json_object(call.request, _FIELDS)
    port, name = _port(body.get("port")), body.get("name")
    if str(body.get("protocol", "HTTP")).upper() != "HTTP":
        raise unsupported(f"protocol {body['protocol']!r}", "HTTP and WebSocket are; TCP is by `rollbox forward`.")
    if name is not None and not isinstance(name, str):
        raise Refusal(400, f"name {name!r} is not text")
    session = await call.session()
    exposed = await session.sandbox.ports.expose(port, public=True)
    session.names.pop(port, None)
    if name is not None:
        session.names[port] = name
    return web.json_response(_told(session, port, exposed.url))


async def unexpose(call: Call) -> web.StreamResponse:
    """Let nobody reach it any more."""
    digits = call.more.removeprefix(_ID)
    if not call.more.startswith(_ID) or not digits.isascii() or not digits.isdigit():
        raise Refusal(404, f"there is no exposure {call.more[:64]!r}", "not_found")
    await (await call.session()).sandbox.ports.close(_port(int(digits[:6])))
    return web.json_response({"exposure_id": call.more})


async def of_one(call: Call) -> web.StreamResponse:
    """List those of one sandbox."""
    return web.json_response({"exposures": await _of(call, await (await call.client()).get(call.name))})


async def of_all(call: Call) -> web.StreamResponse:
    """List those of all sandboxes of the owner."""
    records = [one for one in await (await call.client()).list() if one.public_ports]
    told = await asyncio.gather(*(_of(call, one) for one in records))
    return web.json_response({"exposures": [one for some in told for one in some]})


async def _of(call: Call, record: SandboxRecord) -> list[dict[str, Any]]:
    if not record.public_ports or record.end is not None:
        return []
    session = await call.owners.session(record.id, call.key)
    exposed = [(port, await session.sandbox.ports.expose(port, public=True)) for port in record.public_ports]
    return [_told(session, port, one.url) for port, one in exposed]


def _told(session: Session, port: int, url: str) -> dict[str, Any]:
    return {
        "exposure_id": f"{_ID}{port}",
        "sandbox_id": session.sandbox.id,
        "port": port,
        "name": session.names.get(port),
        "url": url,
        "tls_socket": "",
        "protocol": "HTTP",
    }


def _port(value: Any) -> int:  # noqa: ANN401 - JSON
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= _MOST_PORT:
        raise Refusal(400, f"port {value!r} is not a number from 1 to {_MOST_PORT}")
    return value
