"""Sockets: a WebSocket with any client, and datagrams, to a server in a sandbox."""

import asyncio
import sys

import aiohttp

from rollbox import Sandbox

# Any image with Python; this one was made by `make demo`.
IMAGE = sys.argv[1] if len(sys.argv) > 1 else "localhost/rollbox/python:1"
PORT = 8001
# Answers one short WebSocket message of each connection, and every datagram.
ECHO = """
import asyncio, base64, hashlib, sys

async def answer(reader, writer):
    head = (await reader.readuntil(b"\\r\\n\\r\\n")).decode().splitlines()
    (key,) = [line.split(": ")[1] for line in head if line.lower().startswith("sec-websocket-key:")]
    digest = hashlib.sha1((key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11").encode()).digest()
    accepted = ["HTTP/1.1 101 Switching Protocols", "Upgrade: websocket", "Connection: Upgrade"]
    accepted += ["Sec-WebSocket-Accept: " + base64.b64encode(digest).decode(), "", ""]
    writer.write("\\r\\n".join(accepted).encode())
    length = (await reader.readexactly(2))[1] & 127
    mask, data = await reader.readexactly(4), await reader.readexactly(length)
    data = b"echo " + bytes(byte ^ mask[at % 4] for at, byte in enumerate(data))
    writer.write(bytes([0x81, len(data)]) + data)
    # The client's closing handshake, without an answer to which it waits for ten seconds.
    await reader.read(64)
    writer.write(bytes([0x88, 0]))
    writer.close()

class Datagrams(asyncio.DatagramProtocol):
    def connection_made(self, transport):
        self.transport = transport
    def datagram_received(self, data, peer):
        self.transport.sendto(b"echo " + data, peer)

async def main(address):
    await asyncio.get_running_loop().create_datagram_endpoint(Datagrams, local_addr=address)
    server = await asyncio.start_server(answer, *address)
    await server.serve_forever()

asyncio.run(main(("127.0.0.1", int(sys.argv[1]))))
"""


async def main() -> None:
    """Send a message over a WebSocket and one in a datagram, and get both back."""
    async with (
        await Sandbox.create(IMAGE, memory="512Mi", ttl=600, files={"/tmp/echo.py": ECHO}) as sandbox,
        await sandbox.spawn(["python3", "/tmp/echo.py", str(PORT)]),
    ):
        await sandbox.ports.wait(PORT, timeout=30)
        port = await sandbox.ports.expose(PORT)
        async with aiohttp.ClientSession() as http, http.ws_connect(port.url, headers=port.headers) as socket:
            await socket.send_str("message")
            print("WebSocket:", await socket.receive_str())
        async with await sandbox.ports.connect_udp(PORT) as datagrams:
            await datagrams.send(b"datagram")
            print("UDP:", (await datagrams.receive()).decode())


asyncio.run(main())
