"""Ports: reach what listens in a sandbox over HTTP, WebSocket, TCP and UDP, and from a port of this machine."""

import asyncio
import json
import signal
import sys
import urllib.error
import urllib.request
from collections.abc import Mapping
from urllib.parse import urlsplit

import aiohttp

from rollbox import Sandbox

# Any image with Python; this one was made by `make demo`.
IMAGE = sys.argv[1] if len(sys.argv) > 1 else "localhost/rollbox/python:1"
PORT, SOCKET_PORT = 8000, 8001
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
    await reader.read()

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


def get(url: str, headers: Mapping[str, str]) -> str:
    """Send an HTTP request as any program would; returns the text, or the status of a refusal."""
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=dict(headers))) as answer:
            return str(answer.read().decode().strip())
    except urllib.error.HTTPError as refusal:
        with refusal:
            return f"refused with {refusal.code}"


async def opened(url: str) -> str:
    """Fetch a port that was just made public: retry, since gateways learn of it a moment after the answer."""
    async with asyncio.timeout(30):
        while (told := await asyncio.to_thread(get, url, {})) == "refused with 401":
            pass
    return told


async def pages(sandbox: Sandbox) -> None:
    """HTTP: private, public, by host name, and as raw bytes."""
    await sandbox.ports.wait(PORT, timeout=30)
    port = await sandbox.ports.expose(PORT)
    print("private:", await asyncio.to_thread(get, port.url, port.headers))
    print("without its headers:", await asyncio.to_thread(get, port.url, {}))
    if port.host_url is not None:
        # A browser would resolve the name; here the Host header has it, so that no DNS is needed.
        gateway, name = urlsplit(port.url), urlsplit(port.host_url).netloc
        told = await asyncio.to_thread(get, f"{gateway.scheme}://{gateway.netloc}/", {**port.headers, "Host": name})
        print("by host name:", told)

    port = await sandbox.ports.expose(PORT, public=True)
    print("public:", await opened(port.url))
    await sandbox.ports.close(PORT)

    async with await sandbox.ports.connect_tcp(PORT) as stream:
        await stream.write(b"HEAD / HTTP/1.0\r\n\r\n")
        print("raw:", (await stream.read()).splitlines()[0].decode())


async def sockets(sandbox: Sandbox) -> None:
    """A WebSocket with any client, and datagrams."""
    await sandbox.ports.wait(SOCKET_PORT, timeout=30)
    port = await sandbox.ports.expose(SOCKET_PORT)
    async with aiohttp.ClientSession() as http, http.ws_connect(port.url, headers=port.headers) as socket:
        await socket.send_str("message")
        print("WebSocket:", await socket.receive_str())
    async with await sandbox.ports.connect_udp(SOCKET_PORT) as datagrams:
        await datagrams.send(b"datagram")
        print("UDP:", (await datagrams.receive()).decode())


async def forwarded(sandbox: Sandbox) -> None:
    """Forward the port to one of this machine, for programs that know nothing of rollbox; 0 takes a free one."""
    command = [sys.executable, "-m", "rollbox", "port-forward", sandbox.id, f"0:{PORT}", "--json"]
    pipe, quiet = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
    forward = await asyncio.create_subprocess_exec(*command, stdout=pipe, stderr=quiet)
    assert forward.stdout is not None
    local = json.loads(await forward.stdout.readuntil(b"}\n"))["port"]
    print("forwarded:", await asyncio.to_thread(get, f"http://127.0.0.1:{local}/", {}))
    forward.send_signal(signal.SIGINT)
    await forward.wait()


async def main() -> None:
    """Serve a folder and an echo in the sandbox, and reach them from here."""
    files = {"/tmp/site/index.html": "hello from the sandbox\n", "/tmp/echo.py": ECHO}
    async with await Sandbox.create(IMAGE, memory="512Mi", ttl=600, files=files) as sandbox:
        async with await sandbox.spawn(["python3", "-m", "http.server", str(PORT)], cwd="/tmp/site"):
            await pages(sandbox)
            await forwarded(sandbox)
        async with await sandbox.spawn(["python3", "/tmp/echo.py", str(SOCKET_PORT)]):
            await sockets(sandbox)


asyncio.run(main())
