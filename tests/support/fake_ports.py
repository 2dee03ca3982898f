"""Ports of the fake gateway's sandboxes: those of this machine."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from aiohttp import WSCloseCode, WSMsgType, web

EOF = json.dumps({"type": "eof"})
REFUSED = {"type": "problem", "code": "port_unreachable", "title": "t", "detail": "the server broke the connection"}
DOMAIN = "ports.example.com"


def told(box: dict[str, Any], port: int, visibility: str) -> dict[str, Any]:
    """Open or close a port and say where it is."""
    others = {*box.get("public_ports", ())} - {port}
    box["public_ports"] = sorted(others | {port} if visibility == "public" else others)
    url = f"/v1/sandboxes/{box['id']}/ports/{port}/http/"
    return {"port": port, "visibility": visibility, "url": url, "host_url": f"//{port}-{box['id']}.{DOMAIN}/"}


async def state(request: web.Request) -> web.Response:
    """Whether something listens now; never waits."""
    port = int(request.match_info["port"])
    listening = False
    with suppress(OSError):
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.close()
        listening = True
    return web.json_response({"port": port, "listening": listening})


async def tcp(request: web.Request) -> web.StreamResponse:
    """A connection as messages."""
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", int(request.match_info["port"]))
    except OSError as error:
        body = {**REFUSED, "detail": str(error), "fault": "workload", "retry": "later"}
        return web.json_response(body, status=502, content_type="application/problem+json")
    socket = web.WebSocketResponse()
    await socket.prepare(request)

    async def down() -> None:
        try:
            while data := await reader.read(2**16):
                await socket.send_bytes(data)
        except OSError:
            await socket.send_str(json.dumps(REFUSED))
            await socket.close()
            return
        await socket.send_str(EOF)

    going = asyncio.create_task(down())
    try:
        async for message in socket:
            if message.type is WSMsgType.BINARY:
                writer.write(message.data)
                await writer.drain()
            else:
                writer.write_eof()
                await asyncio.wait([going])
                await socket.close(code=WSCloseCode.OK)
    finally:
        # First, because the server of the fake cancels what runs when the client has gone.
        writer.close()
        going.cancel()
        await asyncio.wait([going])
    return socket


class _Peer(asyncio.DatagramProtocol):
    def __init__(self, came: Callable[[bytes], None]) -> None:
        self._came = came

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        self._came(data)


async def udp(request: web.Request) -> web.StreamResponse:
    """Datagrams as messages."""
    came: asyncio.Queue[bytes] = asyncio.Queue()
    remote = ("127.0.0.1", int(request.match_info["port"]))
    make = asyncio.get_running_loop().create_datagram_endpoint
    transport, _ = await make(lambda: _Peer(came.put_nowait), remote_addr=remote)
    socket = web.WebSocketResponse()
    await socket.prepare(request)

    async def down() -> None:
        while True:
            await socket.send_bytes(await came.get())

    going = asyncio.create_task(down())
    try:
        async for message in socket:
            transport.sendto(message.data)
    finally:
        transport.close()
        going.cancel()
        await asyncio.wait([going])
    return socket
