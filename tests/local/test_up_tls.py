"""`rollbox up` with a certificate: all kinds of calls over HTTPS, its renewal, and what is told where it fails."""

from __future__ import annotations

import asyncio
import os
import ssl
import sys
import tempfile
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest

from tests.support.authority import Authority
from tests.support.images import IMAGE
from tests.support.stack import Stack, free_port, start, stop_process
from tests.support.waiting import until

# Over a MiB, input goes by a WebSocket.
USES = """
from rollbox import sync

with sync.Sandbox.create(IMAGE) as sandbox:
    assert sandbox.exec("wc -c", stdin=b"x" * (2 << 20)).stdout.strip() == str(2 << 20)
    sandbox.files.write("/tmp/f", b"y" * (2 << 20))
    assert len(sandbox.files.read("/tmp/f")) == 2 << 20
    print("served")
"""

# A browser keeps no cookie apart for TLS, and gives a page's scripts less, where it is not Secure.
SERVES = """
import urllib.request
from rollbox import sync

SERVER = '''
from http.server import BaseHTTPRequestHandler, HTTPServer

class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.send_header("Set-Cookie", "a=1")
        self.end_headers()

HTTPServer(("127.0.0.1", 8000), Handler).serve_forever()
'''
with sync.Sandbox.create(IMAGE) as sandbox:
    sandbox.files.write("/tmp/server.py", SERVER)
    sandbox.spawn(["python3", "/tmp/server.py"], stdin=False)
    sandbox.ports.wait(8000)
    url = sandbox.ports.expose(8000, public=True).url
    asked = urllib.request.Request(url, headers={"X-Forwarded-Proto": "http"})
    with urllib.request.urlopen(asked) as answer:
        print(url.partition(":")[0], "Secure" in answer.headers["Set-Cookie"])
"""


class Secured:
    """A stack with a port of TLS.

    Attributes:
        stack: the same without TLS, on this machine.
        folder: with `tls.crt` and its key, and `ca.crt`, the authority's.
    """

    def __init__(self, stack: Stack, folder: Path, port: int) -> None:
        self.stack, self.folder, self.port = stack, folder, port

    async def ran(self, program: str, scheme: str = "https", **environ: str) -> tuple[int, str, str]:
        """Run a program that finds the gateway by its environment; returns status, output and errors."""
        told = {"ROLLBOX_URL": f"{scheme}://localhost:{self.port}", "ROLLBOX_API_KEY": self.stack.api_key}
        trusted = {"SSL_CERT_FILE": str(self.folder / "ca.crt"), **environ}
        made = await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            f"IMAGE = {IMAGE!r}\n{program}",
            env={**os.environ, **told, **trusted},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        output, errors = await made.communicate()
        return made.returncode or 0, output.decode(), errors.decode()


@pytest.fixture
async def secured(tmp_path: Path) -> AsyncIterator[Secured]:
    """A short state folder, since paths of sockets are limited."""
    folder, port = Authority().write(tmp_path / "certificate", "localhost"), free_port()
    with tempfile.TemporaryDirectory(prefix="rb-", dir="/tmp") as state:
        files = ("--tls-certificate", str(folder / "tls.crt"), "--tls-key", str(folder / "tls.key"))
        up = await start(Path(state), "--tls-listen", f"127.0.0.1:{port}", *files)
        try:
            yield Secured(up, folder, port)
        finally:
            assert await stop_process(up.process) == 0


async def test_sandboxes_are_used_over_https_and_told_where_they_cannot(secured: Secured, tmp_path: Path) -> None:
    assert await secured.ran(USES) == (0, "served\n", "")
    other = Authority().write(tmp_path / "other", "localhost")
    status, _, errors = await secured.ran(USES, SSL_CERT_FILE=str(other / "ca.crt"))
    assert (status, "is not trusted" in errors, "SSL_CERT_FILE" in errors) == (1, True, True), errors
    plain = int(secured.stack.url.rpartition(":")[2])
    secured.port, port = plain, secured.port
    status, _, errors = await secured.ran(USES)
    assert (status, "by TLS" in errors) == (1, True), errors
    secured.port = port


async def test_a_server_in_a_sandbox_is_told_of_the_gateways_own_tls(secured: Secured) -> None:
    assert await secured.ran(SERVES) == (0, "https True\n", "")
    secured.port = int(secured.stack.url.rpartition(":")[2])
    assert await secured.ran(SERVES, scheme="http") == (0, "http False\n", "")


async def test_a_renewed_certificate_is_in_force_without_a_restart(secured: Secured, tmp_path: Path) -> None:
    before = (secured.folder / "ca.crt").read_text()
    renewed = Authority().write(tmp_path / "renewed", "localhost")
    for name in ("tls.crt", "tls.key"):
        (renewed / name).replace(secured.folder / name)
    await until(partial(_trusts, secured.port, (renewed / "ca.crt").read_text()), limit_s=60)
    assert not await _trusts(secured.port, before)


async def _trusts(port: int, authority: str) -> bool:
    context = ssl.create_default_context(cadata=authority)
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname="localhost")
    except ssl.SSLCertVerificationError:
        return False
    writer.close()
    return True
