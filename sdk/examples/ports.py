"""Ports: reach a server in a sandbox over HTTP and TCP, and from a port of this machine. More: sockets.py."""

import asyncio
import json
import signal
import sys
import urllib.error
import urllib.request
from collections.abc import Mapping
from urllib.parse import urlsplit

from rollbox import Sandbox

# Any image with Python; this one was made by `make demo`.
IMAGE = sys.argv[1] if len(sys.argv) > 1 else "localhost/rollbox/python:1"
PORT = 8000


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
    """Serve a folder in the sandbox, and reach it from here."""
    files = {"/tmp/site/index.html": "hello from the sandbox\n"}
    async with (
        await Sandbox.create(IMAGE, memory="512Mi", ttl=600, files=files) as sandbox,
        await sandbox.spawn(["python3", "-m", "http.server", str(PORT)], cwd="/tmp/site"),
    ):
        await pages(sandbox)
        await forwarded(sandbox)


asyncio.run(main())
