"""A registry of this process: it gives clients with the password some images well, others in ways that go wrong."""

from __future__ import annotations

import asyncio
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
from dataclasses import dataclass, field
from typing import Final

from aiohttp import web

USER: Final = "me"
PASSWORD: Final = "open-sesame"
MANIFEST: Final = "application/vnd.oci.image.manifest.v1+json"
INDEX: Final = "application/vnd.oci.image.index.v1+json"
SCHEMA_1: Final = "application/vnd.docker.distribution.manifest.v1+prettyjws"
LAYER_BYTES: Final = 1 << 20
# How long the layer of `slow` takes, in so many parts.
SLOW_S, SLOW_PARTS = 4.0, 16
REFUSALS: Final = {"absent": (404, "MANIFEST_UNKNOWN"), "busy": (429, "TOOMANYREQUESTS"), "broken": (500, "UNKNOWN")}
# Of these everything is refused to clients without the password.
CLOSED: Final = ("private", "slow")
LAYERS: Final = ("private", "slow", "cut", "lying", "silent", "limited")
# So often the layer of `limited` is refused, with so many seconds to wait.
LIMITED_TIMES, LIMITED_S = 2, 1
_MACHINES: Final = {"x86_64": "amd64", "aarch64": "arm64"}


@dataclass(frozen=True)
class OddRegistry:
    """Where it is.

    Attributes:
        layers: which layers were asked for, as often as that was.
    """

    host: str
    layers: list[str] = field(default_factory=list)

    def image(self, kind: str) -> str:
        """The name of an image of this kind.

        `private` and `slow` want the password. No image is there of `absent`, `busy` (429) and `broken` (500). The
        layers of `cut` break off, those of `lying` are others, those of `silent` do not go on; that of `limited` is
        given after two answers of 429 with a second to wait. `foreign` is for other machines, `old` has a manifest of
        schema 1, `many` has 128 layers, and `elsewhere` one that no registry has.
        """
        return f"{self.host}/{kind}:1"


@contextlib.asynccontextmanager
async def odd_registry(address: str = "127.0.0.1", port: int = 0) -> AsyncIterator[OddRegistry]:
    """It listens while the block runs; every image has content that no node has seen."""
    images = {kind: _Image() for kind in LAYERS}
    asked: list[str] = []
    over = asyncio.Event()

    async def answer(request: web.Request) -> web.StreamResponse:
        if request.path == "/v2/":
            return web.json_response({})
        _, _, kind, what, name = request.path.split("/", 4)
        if (image := images.get(kind)) is None or (kind in CLOSED and not _known(request)):
            return _at_once(kind)
        if what == "manifests":
            return _manifest(MANIFEST, image.manifest)
        if name == _digest(image.config):
            return web.Response(body=image.config)
        asked.append(kind)
        if kind == "limited" and asked.count(kind) <= LIMITED_TIMES:
            return _refusal(429, "TOOMANYREQUESTS", **{"Retry-After": str(LIMITED_S)})
        return await _layer(request, image.layer, kind, over)

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, address, port).start()
        yield OddRegistry(f"{address}:{runner.addresses[0][1]}", asked)
    finally:
        over.set()
        await runner.cleanup()


async def _layer(request: web.Request, layer: bytes, kind: str, over: asyncio.Event) -> web.StreamResponse:
    if kind == "lying":
        return web.Response(body=bytes(len(layer)))
    if kind in ("private", "limited"):
        return web.Response(body=layer)
    parts = SLOW_PARTS if kind == "slow" else SLOW_PARTS // 2
    sent = web.StreamResponse(headers={"Content-Length": str(len(layer))})
    await sent.prepare(request)
    size = -(-len(layer) // SLOW_PARTS)
    for number in range(parts):
        await sent.write(layer[number * size : (number + 1) * size])
        await asyncio.sleep(SLOW_S / SLOW_PARTS if kind == "slow" else 0)
    if kind == "silent":
        await over.wait()
    # None: who asked has gone.
    if kind != "slow" and request.transport is not None:
        request.transport.abort()
    return sent


def _at_once(kind: str) -> web.Response:
    """The answer where there is no image to give."""
    if kind in REFUSALS:
        return _refusal(*REFUSALS[kind])
    if kind in MANIFESTS:
        return _manifest(*MANIFESTS[kind])
    return _refusal(401, "UNAUTHORIZED", **{"WWW-Authenticate": 'Basic realm="rollbox"'})


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


def _known(request: web.Request) -> bool:
    given = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
    return request.headers.get("Authorization") == f"Basic {given}"


def _manifest(kind: str, body: bytes) -> web.Response:
    return web.Response(body=body, content_type=kind, headers={"Docker-Content-Digest": _digest(body)})


def _refusal(status: int, code: str, **headers: str) -> web.Response:
    return web.json_response({"errors": [{"code": code, "message": code.lower()}]}, status=status, headers=headers)


def _descriptor(kind: str, content: bytes) -> dict[str, str | int]:
    return {"mediaType": kind, "digest": _digest(content), "size": len(content)}


def _digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def _for_other_machines() -> bytes:
    """An index whose manifest is never asked for."""
    elsewhere = {"platform": {"architecture": "s390x", "os": "linux"}}
    listed = [{"mediaType": MANIFEST, "digest": f"sha256:{'0' * 64}", "size": 2, **elsewhere}]
    return json.dumps({"schemaVersion": 2, "mediaType": INDEX, "manifests": listed}).encode()


def _of_schema_1() -> bytes:
    layers = {"fsLayers": [{"blobSum": _digest(b"")}], "history": [{"v1Compatibility": "{}"}]}
    return json.dumps({"schemaVersion": 1, "name": "old", "tag": "1", "architecture": "amd64", **layers}).encode()


def _of_layers(count: int, kind: str) -> bytes:
    config = _descriptor("application/vnd.oci.image.config.v1+json", b"{}")
    layers = [_descriptor(kind, str(number).encode()) for number in range(count)]
    return json.dumps({"schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": layers}).encode()


LAYER: Final = "application/vnd.oci.image.layer.v1.tar+gzip"
# What is said to whoever asks for a manifest of these.
MANIFESTS: Final = {
    "foreign": (INDEX, _for_other_machines()),
    "old": (SCHEMA_1, _of_schema_1()),
    "many": (MANIFEST, _of_layers(128, LAYER)),
    "elsewhere": (MANIFEST, _of_layers(1, "application/vnd.docker.image.rootfs.foreign.diff.tar.gzip")),
}
