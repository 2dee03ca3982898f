"""The package cache with its real nginx, in front of an index of the test's own that counts what it is asked."""

from __future__ import annotations

import asyncio
import collections
import contextlib
import functools
import json
import os
import re
import shutil
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import aiohttp
from aiohttp import web

from tests.support.stack import free_port

PROGRAM: Final = Path(__file__).parents[2] / "images" / "packages"
MODULE: Final = Path("/usr/lib/nginx/modules/ngx_http_js_module.so")
KEY: Final = "a key of tests, of forty characters or so"
UP_WITHIN_S: Final = 60.0
# What is published, and when; None: the index does not say.
RELEASES: Final[Mapping[str, str | None]] = {
    "1.0": "2020-01-01T00:00:00.000001Z",
    "2.0": "2024-06-01T00:00:00Z",
    "3.0": None,
}
FILE_BYTES: Final = 20_000_000
_JSON: Final = "application/vnd.pypi.simple.v1+json"
# Pages that are always the same, and what they are said to be.
_FIXED: Final[Mapping[str, tuple[str, str]]] = {
    "/pypi/simple/": ("all projects", "text/html"),
    "/pypi/simple/broken/": ('{"files": [', _JSON),
    "/pypi/simple/undated/": (
        '<a href="../../packages/ab/undated-1.0.tar.gz#sha256=00">undated-1.0.tar.gz</a>',
        "text/html",
    ),
}
# Path -> where it leads to.
_MOVED: Final = {
    "/pypi/simple/Tiny/": "/pypi/simple/tiny/",
    "/files/packages/moved": "{}/files/packages/1.0/tiny-1.0-py3-none-any.whl",
    "/files/packages/elsewhere": "https://elsewhere.test/tiny",
}


def why_no_cache() -> str | None:
    """Why it cannot run here; None: it can."""
    return None if MODULE.exists() else "there is no nginx with njs: `make setup` installs it"


@dataclass
class Index:
    """Indexes of Python and npm packages, below the names that they have to the cache.

    Attributes:
        asked: how many times, by path.
        broken: what it answers everything with instead; 0: nothing is broken.
        answering: clear: it answers nothing until it is set.
        releases: of its package, and when; None: it does not say.
    """

    asked: collections.Counter[str] = field(default_factory=collections.Counter)
    broken: int = 0
    answering: asyncio.Event = field(default_factory=asyncio.Event)
    releases: dict[str, str | None] = field(default_factory=lambda: dict(RELEASES))
    address: str = ""

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Answers as the public indexes do."""
        self.asked[request.path] += 1
        await self.answering.wait()
        if self.broken:
            return web.Response(status=self.broken)
        if leads_to := _MOVED.get(request.path):
            raise web.HTTPFound(leads_to.format(self.address))
        match request.path.split("/")[1:]:
            case ["pypi", "simple", "tiny", ""]:
                return web.json_response(_project(self.releases), content_type=_JSON)
            case ["npm", name]:
                body = _package(self.address) if name == "tiny" else await asyncio.to_thread(_large)
                return web.Response(body=body, content_type="application/json")
            case ["files", "packages", *_] | ["npm", "tiny", "-", _]:
                return _file(request)
            case ["pypi", *_] if request.path in _FIXED:
                text, kind = _FIXED[request.path]
                return web.Response(text=text, content_type=kind)
        raise web.HTTPNotFound


def _project(releases: Mapping[str, str | None]) -> dict[str, Any]:
    def file(version: str) -> dict[str, Any]:
        name = f"tiny-{version}-py3-none-any.whl"
        url = f"https://files.pythonhosted.org/packages/{version}/{name}"
        more = {"hashes": {"sha256": "00"}, "requires-python": ">=3.8", "core-metadata": {"sha256": "01"}}
        return {"filename": name, "url": url, "upload-time": releases[version], **more}

    files = [file(version) for version in releases]
    return {"meta": {"api-version": "1.1"}, "name": "tiny", "versions": [*releases], "files": files}


def _package(address: str) -> bytes:
    versions = {
        version: {"name": "tiny", "version": version, "dist": {"tarball": f"{address}/npm/tiny/-/tiny-{version}.tgz"}}
        for version in RELEASES
    }
    time = {"created": "2020-01-01", "modified": "2026-01-01"} | {one: at for one, at in RELEASES.items() if at}
    tags = {"latest": "3.0", "old": "1.0"}
    return json.dumps({"name": "tiny", "dist-tags": tags, "versions": versions, "time": time}).encode()


@functools.cache
def _large() -> bytes:
    """A package of some 5 MB with as many small parts as real ones have."""
    needs = {f"needs-{at}": "^1.0.0" for at in range(60)}
    tarball = {"dist": {"tarball": "https://registry.npmjs.org/large/-/large-1.0.tgz"}}
    versions = {f"1.0.{at}": {"dependencies": needs, **tarball} for at in range(4000)}
    return json.dumps({"name": "large", "dist-tags": {}, "versions": versions}).encode()


def _file(request: web.Request) -> web.Response:
    """A part of a file, where one is asked for."""
    part = request.http_range
    whole = b"x" * FILE_BYTES
    # The second is not an index's to say.
    headers = {"ETag": '"1"', "X-Rollbox-Cache": "HIT"}
    if part.start is None:
        return web.Response(body=whole, headers=headers)
    first, last = part.start, min(part.stop or FILE_BYTES, FILE_BYTES)
    headers["Content-Range"] = f"bytes {first}-{last - 1}/{FILE_BYTES}"
    return web.Response(status=206, body=whole[first:last], headers=headers)


@dataclass
class PackageCache:
    """Asks the cache as egress does.

    Attributes:
        url: where it listens.
        index: what is behind it.
        folder: where it writes.
        location: where the last answer led to; empty: nowhere.
        how: what it said of how it has come by the last answer; empty: nothing.
    """

    url: str
    index: Index
    http: aiohttp.ClientSession
    folder: Path
    location: str = ""
    how: str = ""

    async def get(
        self, path: str, *, until: str = "", method: str = "GET", body: bytes | None = None, **headers: str
    ) -> tuple[int, bytes]:
        """The status and the body of an answer to a request for a path, whose first segment is the index."""
        told = {"Host": "packages.rollbox.internal", "x-rollbox-index": path.split("/")[1]}
        told |= {"x-rollbox-until": until} if until else {}
        told |= {name.replace("_", "-"): value for name, value in headers.items()}
        async with self.http.request(
            method, f"{self.url}{path}", headers=told, data=body, allow_redirects=False
        ) as answer:
            self.location = answer.headers.get("Location", "")
            self.how = ", ".join(answer.headers.getall("X-Rollbox-Cache", []))
            return answer.status, await answer.read()

    def most_memory_mb(self) -> int:
        """The most that its processes have ever had in memory together, or more."""
        first = (self.folder / "made" / "packages.pid").read_text().strip()
        others = Path(f"/proc/{first}/task/{first}/children").read_text().split()
        told = [re.findall(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text()) for pid in others]
        return sum(int(kilobytes) for (kilobytes,) in told) // 1000


def environ(folder: Path, port: int, indexes: Mapping[str, str]) -> dict[str, str]:
    """Settings of a cache that listens on the loopback."""
    return {
        "ROLLBOX_PACKAGES_INDEXES": ",".join(f"{name}={url}" for name, url in indexes.items()),
        "ROLLBOX_PACKAGES_KEY": KEY,
        "ROLLBOX_PACKAGES_SIZE_MB": "1000",
        "ROLLBOX_PACKAGES_LISTEN": f"127.0.0.1:{port}",
        "ROLLBOX_PACKAGES_RESOLVER": "127.0.0.1:9",
        "ROLLBOX_PACKAGES_FOLDER": str(folder),
        "ROLLBOX_PACKAGES_PROGRAM": str(PROGRAM),
    }


@asynccontextmanager
async def serving(settings: Mapping[str, str]) -> AsyncIterator[None]:
    """A cache that runs while the block does.

    Raises:
        RuntimeError: it did not start.
    """
    url = f"http://{settings['ROLLBOX_PACKAGES_LISTEN']}/healthz"
    log = Path(settings["ROLLBOX_PACKAGES_FOLDER"]) / "log"
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as kept:
        started = await asyncio.create_subprocess_exec(
            PROGRAM / "start", env={**os.environ, **settings}, stdout=kept, stderr=kept
        )
    try:
        async with asyncio.timeout(UP_WITHIN_S), aiohttp.ClientSession() as http:
            while not await _answers(http, url):
                if started.returncode is not None:
                    raise RuntimeError(f"the package cache has ended: {log.read_text()[-2000:]}")
                await asyncio.sleep(0.05)
        yield
    finally:
        started.terminate()
        await asyncio.wait_for(started.wait(), UP_WITHIN_S)


async def _answers(http: aiohttp.ClientSession, url: str) -> bool:
    with contextlib.suppress(aiohttp.ClientError):
        async with http.get(url) as answer:
            return answer.status == 200
    return False


def hurried(folder: Path) -> dict[str, str]:
    """Settings of a cache that keeps pages for a second, and waits for an index no longer than that."""
    program = shutil.copytree(PROGRAM, folder / "program")
    text = (program / "nginx.conf").read_text()
    for slow, quick in ((" 5m;", " 1s;"), ("proxy_read_timeout 10s;", "proxy_read_timeout 1s;")):
        assert slow in text
        text = text.replace(slow, quick)
    (program / "nginx.conf").write_text(text)
    return {"ROLLBOX_PACKAGES_PROGRAM": str(program)}


@asynccontextmanager
async def package_cache(folder: Path, settings: Mapping[str, str] | None = None) -> AsyncIterator[PackageCache]:
    """A cache in front of an index of one's own, with more settings."""
    index = Index()
    index.answering.set()
    app = web.Application()
    app.add_routes([web.route("*", "/{path:.*}", index.answer)])
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        index.address = f"http://127.0.0.1:{runner.addresses[0][1]}"
        indexes = {
            "pypi.org": f"{index.address}/pypi",
            "files.pythonhosted.org": f"{index.address}/files",
            "registry.npmjs.org": f"{index.address}/npm",
            "index.crates.io": index.address,
        }
        port = free_port()
        async with serving(environ(folder, port, indexes) | dict(settings or {})), aiohttp.ClientSession() as http:
            yield PackageCache(f"http://127.0.0.1:{port}", index, http, folder)
    finally:
        index.answering.set()
        await runner.cleanup()
