"""A registry of this process that gives one image well to who has its password, and others in ways that go wrong."""

from __future__ import annotations

import base64
import contextlib
import gzip
import hashlib
import io
import json
import os
import platform
import tarfile
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Final

from aiohttp import web

USER: Final = "me"
PASSWORD: Final = "open-sesame"
MANIFEST: Final = "application/vnd.oci.image.manifest.v1+json"
LAYER_BYTES: Final = 1 << 20
_MACHINES: Final = {"x86_64": "amd64", "aarch64": "arm64"}


@dataclass(frozen=True)
class OddRegistry:
    """Where it is."""

    host: str

    def image(self, kind: str) -> str:
        """One of `private`, `cut` (layers break off), `lying` (layers are others), `busy` (429), `broken` (500)."""
        return f"{self.host}/{kind}:1"


@contextlib.asynccontextmanager
async def odd_registry() -> AsyncIterator[OddRegistry]:
    """It listens on loopback while the block runs; every image has content that no node has seen."""
    images = {kind: _Image() for kind in ("private", "cut", "lying")}

    async def answer(request: web.Request) -> web.StreamResponse:
        if request.path == "/v2/":
            return web.json_response({})
        _, _, kind, what, name = request.path.split("/", 4)
        if kind in ("busy", "broken"):
            return _refusal({"busy": 429, "broken": 500}[kind], "TOOMANYREQUESTS" if kind == "busy" else "UNKNOWN")
        if kind not in images or (kind == "private" and not _known(request)):
            return _refusal(401, "UNAUTHORIZED", **{"WWW-Authenticate": 'Basic realm="rollbox"'})
        return await images[kind].answer(request, what, name, kind)

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield OddRegistry(f"127.0.0.1:{runner.addresses[0][1]}")
    finally:
        await runner.cleanup()


class _Image:
    """One layer with random content."""

    def __init__(self) -> None:
        file = io.BytesIO()
        with tarfile.open(fileobj=file, mode="w") as archive:
            about = tarfile.TarInfo("random")
            about.size = LAYER_BYTES
            archive.addfile(about, io.BytesIO(os.urandom(LAYER_BYTES)))
        self.layer = gzip.compress(file.getvalue(), compresslevel=1)
        rootfs = {"type": "layers", "diff_ids": [_digest(file.getvalue())]}
        machine = _MACHINES.get(platform.machine(), platform.machine())
        self.config = json.dumps({"architecture": machine, "os": "linux", "config": {}, "rootfs": rootfs}).encode()
        parts = {
            "config": _descriptor("application/vnd.oci.image.config.v1+json", self.config),
            "layers": [_descriptor("application/vnd.oci.image.layer.v1.tar+gzip", self.layer)],
        }
        self.manifest = json.dumps({"schemaVersion": 2, "mediaType": MANIFEST, **parts}).encode()

    async def answer(self, request: web.Request, what: str, name: str, kind: str) -> web.StreamResponse:
        if what == "manifests":
            digest = {"Docker-Content-Digest": _digest(self.manifest)}
            return web.Response(body=self.manifest, content_type=MANIFEST, headers=digest)
        if name == _digest(self.config):
            return web.Response(body=self.config)
        if kind == "lying":
            return web.Response(body=bytes(len(self.layer)))
        if kind == "cut":
            cut = web.StreamResponse(headers={"Content-Length": str(len(self.layer))})
            await cut.prepare(request)
            await cut.write(self.layer[: len(self.layer) // 2])
            assert request.transport is not None
            request.transport.abort()
            return cut
        return web.Response(body=self.layer)


def _known(request: web.Request) -> bool:
    given = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
    return request.headers.get("Authorization") == f"Basic {given}"


def _refusal(status: int, code: str, **headers: str) -> web.Response:
    return web.json_response({"errors": [{"code": code, "message": code.lower()}]}, status=status, headers=headers)


def _descriptor(kind: str, content: bytes) -> dict[str, str | int]:
    return {"mediaType": kind, "digest": _digest(content), "size": len(content)}


def _digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"
