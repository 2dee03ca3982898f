"""What registries answer when they do not give an image: the create fails within seconds and says which it was."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator

import pytest
from aiohttp import web

from rollbox import Client
from rollbox.errors import SandboxError
from tests.support.installed import own_cluster

INDEX = "application/vnd.oci.image.index.v1+json"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
# An image for machines of another kind only; its manifest is never asked for.
FOREIGN = json.dumps(
    {
        "schemaVersion": 2,
        "mediaType": INDEX,
        "manifests": [
            {
                "mediaType": MANIFEST,
                "digest": f"sha256:{'0' * 64}",
                "size": 2,
                "platform": {"architecture": "s390x", "os": "linux"},
            }
        ],
    }
).encode()


def _refusal(status: int, code: str, **headers: str) -> web.Response:
    return web.json_response({"errors": [{"code": code, "message": code.lower()}]}, status=status, headers=headers)


async def _answer(request: web.Request) -> web.Response:
    if request.path == "/v2/":
        return web.json_response({})
    match request.path.split("/")[2]:
        case "secret":
            return _refusal(401, "UNAUTHORIZED", **{"WWW-Authenticate": 'Basic realm="rollbox"'})
        case "busy":
            return _refusal(429, "TOOMANYREQUESTS")
        case "foreign":
            digest = f"sha256:{hashlib.sha256(FOREIGN).hexdigest()}"
            return web.Response(body=FOREIGN, content_type=INDEX, headers={"Docker-Content-Digest": digest})
    return _refusal(404, "MANIFEST_UNKNOWN")


@pytest.fixture
async def registry() -> AsyncIterator[str]:
    """A registry of this process; the node is this machine, and asks without TLS what is on it."""
    if not own_cluster():
        pytest.skip("a given cluster's nodes do not reach this process")
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", _answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


async def test_each_refusal_of_a_registry_has_its_own_words(registry: str, client: Client) -> None:
    expected = {
        "secret": ("image_pull_failed", "check the image pull secrets"),
        "busy": ("image_pull_failed", "limits the rate of pulls"),
        "foreign": ("image_pull_failed", "not for the architecture of the node"),
        "absent": ("image_not_found", "absent/image:1"),
    }

    async def refused(name: str) -> tuple[str, str]:
        with pytest.raises(SandboxError) as caught:
            async with asyncio.timeout(60):
                await client.create(f"{registry}/{name}/image:1")
        return caught.value.code, str(caught.value.detail)

    told = dict(zip(expected, await asyncio.gather(*map(refused, expected)), strict=True))
    for name, (code, words) in expected.items():
        assert told[name][0] == code, told[name]
        assert words in told[name][1]
        assert f"{registry}/{name}/image:1" in told[name][1]
