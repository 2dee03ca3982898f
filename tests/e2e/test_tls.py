"""A certificate of the gateway's: taken into use, renewed and given up again, while a sandbox runs."""

from __future__ import annotations

import asyncio
import contextlib
import os
import ssl
import sys
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from rollbox import Client
from tests.support.authority import Authority
from tests.support.images import IMAGE
from tests.support.installed import Installed, apply, kubectl
from tests.support.waiting import until

SECRET = "gateway-certificate"
# The kubelet brings a changed Secret to a pod within a minute and a half, the gateway looks every ten seconds.
RENEWED_WITHIN_S = 180.0
USES = """
import sys
from rollbox import sync

sandbox = sync.Sandbox.connect(sys.argv[1])
print(sandbox.exec("wc -c", stdin=b"x" * (2 << 20)).stdout.strip())
"""


@pytest.mark.disrupts
@pytest.mark.timeout(600)
async def test_a_certificate_is_taken_into_use_renewed_and_given_up(
    stack: Installed, client: Client, tmp_path: Path
) -> None:
    host = urlsplit(stack.url).hostname or ""
    first, second = (Authority().write(tmp_path / name, host) for name in ("first", "second"))
    async with await client.create(IMAGE, memory="128Mi") as sandbox:
        async with _secured(stack, first):
            assert await _used(stack, host, sandbox.id, first) == str(2 << 20)
            assert not await _open(host, urlsplit(stack.url).port or 80)
            assert await stack.test()
            await _put(stack, second)
            await until(partial(_trust, stack, host, second), RENEWED_WITHIN_S)
            assert await _used(stack, host, sandbox.id, second) == str(2 << 20)
        assert (await sandbox.exec("echo still")).stdout == "still\n"


@contextlib.asynccontextmanager
async def _secured(stack: Installed, files: Path) -> AsyncIterator[None]:
    await _put(stack, files)
    try:
        await stack.upgrade(f"gateway.tlsSecret={SECRET}")
        try:
            yield
        finally:
            await stack.rollback()
    finally:
        await kubectl("delete", "secret", SECRET, "-n", stack.namespace)


async def _put(stack: Installed, files: Path) -> None:
    text = {name: (files / name).read_text() for name in ("tls.crt", "tls.key")}
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": SECRET}, "type": "kubernetes.io/tls"}
    await apply({**secret, "stringData": text}, namespace=stack.namespace)


async def _used(stack: Installed, host: str, sandbox_id: str, files: Path) -> str:
    """What a command says over HTTPS, in a process of its own: what OpenSSL trusts is read once."""
    told = {"ROLLBOX_URL": f"https://{host}", "ROLLBOX_API_KEY": stack.api_key, "SSL_CERT_FILE": str(files / "ca.crt")}
    command = (sys.executable, "-c", USES, sandbox_id)
    made = await asyncio.create_subprocess_exec(*command, env={**os.environ, **told}, stdout=asyncio.subprocess.PIPE)
    output, _ = await made.communicate()
    return output.decode().strip()


async def _trust(stack: Installed, host: str, files: Path) -> bool:
    """Whether each gateway has the certificate that this authority has signed: a Service would ask one of them."""
    names = await stack.pods("gateway")
    pods = [pod for pod in await stack.component("gateway") if pod["metadata"]["name"] in names]
    context = ssl.create_default_context(cafile=files / "ca.crt")
    for address in [str(pod["status"]["podIP"]) for pod in pods]:
        try:
            _, writer = await asyncio.open_connection(address, 8443, ssl=context, server_hostname=host)
        except ssl.SSLCertVerificationError:
            return False
        writer.close()
    return len(pods) > 1


async def _open(host: str, port: int) -> bool:
    try:
        async with asyncio.timeout(5):
            _, writer = await asyncio.open_connection(host, port)
    except OSError:
        return False
    writer.close()
    return True
