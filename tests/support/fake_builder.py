"""The program of a build's pod, in this process: it has made what a test says."""

from __future__ import annotations

import asyncio
import hashlib
import io
import json
import tarfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

PROGRAM = b"\x7fELF of the builder" * 20_000


@dataclass
class FakeBuilder:
    """One builder.

    Attributes:
        token: what callers have to show; empty: anything.
        brought: contents that it was given, by digest.
        made: contents that it gives, by digest.
        lines: of its answer to a build; after the last one it breaks the connection, unless that one ends a build.
        files: of the last build, by name, with the folder of its mark as `mark`.
        over: the end of the test.
        begun: it was asked for a build.
        endless: it says these lines, and never ends.
        only_first: in place of `lines`, of the next build.
        full, hangs: tokens of builders that have no room for another build, and of those that do not say whether they
            have.
    """

    token: str = ""
    brought: dict[str, bytes] = field(default_factory=dict)
    made: dict[str, bytes] = field(default_factory=dict)
    lines: list[dict[str, Any]] = field(default_factory=list)
    files: dict[str, bytes] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    over: asyncio.Event = field(default_factory=asyncio.Event)
    begun: asyncio.Event = field(default_factory=asyncio.Event)
    endless: bool = False
    only_first: list[dict[str, Any]] = field(default_factory=list)
    full: set[str] = field(default_factory=set)
    hangs: set[str] = field(default_factory=set)
    port: int = 0

    def makes(self, layers: Mapping[bytes, str], *below: Mapping[str, Any], **more: Any) -> dict[str, Any]:
        """Has it make an image of these layers, on others; the manifest."""
        config = json.dumps({"architecture": "amd64", "os": "linux", **more}).encode()
        own = [self._kept(content, f"application/vnd.oci.image.layer.v1.tar{how}") for content, how in layers.items()]
        manifest = {
            "config": self._kept(config, "application/vnd.oci.image.config.v1+json"),
            "layers": [*below, *own],
        }
        self.lines = [{"text": "#1 RUN\n"}, {"image": manifest}]
        return manifest

    def _kept(self, content: bytes, kind: str) -> dict[str, Any]:
        digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
        self.made[digest] = content
        return {"mediaType": kind, "digest": digest, "size": len(content)}

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Answers a request as `node-go/internal/builder` does."""
        self.asked.append(f"{request.method} {request.path}")
        if self.token and request.headers.get("Authorization") != f"Bearer {self.token}":
            return web.Response(status=401)
        digest = request.path.rpartition("/")[2]
        if request.method == "PUT":
            self.brought[digest] = await request.read()
            return web.Response(status=201)
        if request.path.startswith("/blobs/"):
            found = self.made.get(digest)
            return web.Response(status=404) if found is None else web.Response(body=found)
        if request.path == "/build":
            return await self._build(request)
        # No step connects to anything.
        if request.path == "/connections" or (request.path == "/ready" and self.token in self.hangs):
            await self.over.wait()
        answers = {
            "/program": web.Response(body=PROGRAM),
            "/ready": web.Response(status=503 if self.token in self.full else 200),
        }
        return answers.get(request.path, web.Response(status=404))

    async def _build(self, request: web.Request) -> web.StreamResponse:
        self.begun.set()
        mark = request.headers["Rollbox-Mark"]
        with tarfile.open(fileobj=io.BytesIO(await request.read())) as archive:
            files = {one.name: archive.extractfile(one) for one in archive if one.isfile()}
            self.files = {name.replace(mark, "mark"): file.read() for name, file in files.items() if file is not None}
        response = web.StreamResponse()
        await response.prepare(request)
        lines, self.only_first = self.only_first or self.lines, []
        for line in lines:
            await response.write(json.dumps(line).encode() + b"\n")
        if self.endless:
            await self.over.wait()
        if not lines or not {"image", "reason"} & lines[-1].keys():
            assert request.transport is not None
            request.transport.abort()
        return response


@asynccontextmanager
async def fake_builder() -> AsyncIterator[FakeBuilder]:
    """Serves one on loopback."""
    fake = FakeBuilder()
    app = web.Application(client_max_size=1 << 30)
    app.router.add_route("*", "/{path:.*}", fake.answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    fake.port = runner.addresses[0][1]
    try:
        yield fake
    finally:
        fake.over.set()
        await runner.cleanup()
