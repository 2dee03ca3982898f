"""The servers of `outside`, in one process: files by HTTP, what is refused, a stream without end, and DNS.

python outside_server.py FOLDER
"""

from __future__ import annotations

import asyncio
import socket
import struct
import sys
from collections.abc import Iterable, Iterator
from itertools import cycle
from pathlib import Path
from typing import cast

from aiohttp import web

from tests.support.outside import ALLOWED, ASKED, HOST, INDEXES, NAMES, OTHER, OWN, REFUSED, SECRET, TURNING, WEB
from tests.support.tools import hosts

_TYPE_A, _CLASS_IN, _NO_SUCH_NAME = 1, 1, 3
_HEADER_BYTES = 12
_ADDRESSES = {**NAMES, **dict.fromkeys(hosts.ALL, INDEXES)}
_ANSWERS: dict[str, Iterator[tuple[str, ...]]] = {
    **{name: cycle([(address,)]) for name, address in _ADDRESSES.items()},
    **{name: cycle(lists) for name, lists in TURNING.items()},
}


class Names(asyncio.DatagramProtocol):
    """Answers questions for addresses of `NAMES` and the indexes; all others do not exist. `asked` has all of them."""

    def __init__(self) -> None:
        self.asked: set[str] = set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.DatagramTransport", transport)

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        labels, at = [], _HEADER_BYTES
        while length := data[at]:
            labels.append(data[at + 1 : at + 1 + length].decode())
            at += 1 + length
        question = data[_HEADER_BYTES : at + 5]
        (kind,) = struct.unpack_from("!H", data, at + 1)
        name = ".".join(labels).lower()
        self.asked.add(name)
        known = _ANSWERS.get(name)
        addresses = next(known) if known is not None and kind == _TYPE_A else ()
        flags = 0x8180 | (0 if known is not None else _NO_SUCH_NAME)
        answer = data[:2] + struct.pack("!HHHHH", flags, 1, len(addresses), 0, 0) + question
        for address in addresses:
            answer += struct.pack("!HHHIH", 0xC00C, _TYPE_A, _CLASS_IN, 0, 4) + socket.inet_aton(address)
        self._transport.sendto(answer, addr)


async def _secret(_: web.Request) -> web.Response:
    return web.Response(text=SECRET)


_REFUSED = (web.route("*", "/{path:.*}", _secret),)


async def _endless(request: web.Request) -> web.StreamResponse:
    answer = web.StreamResponse()
    await answer.prepare(request)
    while True:
        await answer.write(b"more\n")
        await asyncio.sleep(0.05)


async def _elsewhere(request: web.Request) -> web.Response:
    return web.Response(status=int(request.match_info["status"]), headers={"Location": request.query["to"]})


async def _serve(routes: Iterable[web.AbstractRouteDef], *addresses: tuple[str, int]) -> None:
    app = web.Application()
    app.add_routes(routes)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    for address in addresses:
        await web.TCPSite(runner, *address).start()


async def _outside(folder: Path) -> None:
    moved = web.get(r"/moved/{status:30[1278]}", _elsewhere)
    await _serve([moved, web.get("/endless", _endless), web.static("/", folder, show_index=True)], (ALLOWED, WEB))
    await _serve(_REFUSED, (ALLOWED, OTHER), (ALLOWED, 443), (REFUSED, WEB), (REFUSED, 80))
    names = Names()

    async def asked(_: web.Request) -> web.Response:
        return web.Response(text="\n".join(sorted(names.asked)))

    await _serve([web.get("/", asked)], (ALLOWED, ASKED))
    await asyncio.get_running_loop().create_datagram_endpoint(lambda: names, local_addr=(ALLOWED, 53))


async def main(arguments: list[str]) -> None:
    """Serves until it is ended."""
    if arguments:
        await _outside(Path(arguments[0]))
    else:
        await _serve(_REFUSED, (HOST, OWN), ("127.0.0.1", OWN))
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
