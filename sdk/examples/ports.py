"""Ports: reach what listens in a sandbox, with its credential, without one when it is public, and as raw bytes."""

import asyncio
import sys
import urllib.error
import urllib.request
from collections.abc import Mapping

from rollbox import Sandbox

# Any image with Python; this one was made by `make demo`.
IMAGE = sys.argv[1] if len(sys.argv) > 1 else "localhost/rollbox/python:1"
PORT = 8000


def get(url: str, headers: Mapping[str, str]) -> str:
    """Ask as any program would; the text, or the status of a refusal."""
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=dict(headers))) as answer:
            return str(answer.read().decode().strip())
    except urllib.error.HTTPError as refusal:
        with refusal:
            return f"refused with {refusal.code}"


async def main() -> None:
    """Serve a folder in the sandbox and read it from here."""
    async with await Sandbox.create(IMAGE, memory="512Mi", ttl=600) as sandbox:
        await sandbox.files.write("/tmp/site/index.html", "hello from the sandbox\n")
        async with await sandbox.spawn(["python3", "-m", "http.server", str(PORT)], cwd="/tmp/site"):
            await sandbox.ports.wait(PORT, timeout=30)
            port = await sandbox.ports.expose(PORT)
            print("private:", await asyncio.to_thread(get, port.url, port.headers))
            print("without its headers:", await asyncio.to_thread(get, port.url, {}))

            port = await sandbox.ports.expose(PORT, public=True)
            print("public:", await asyncio.to_thread(get, port.url, {}))
            await sandbox.ports.close(PORT)

            async with await sandbox.ports.connect_tcp(PORT) as stream:
                await stream.write(b"HEAD / HTTP/1.0\r\n\r\n")
                print("raw:", (await stream.read()).splitlines()[0].decode())


asyncio.run(main())
