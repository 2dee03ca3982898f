"""Programs that fetch packages, on this machine, with a proxy that leads to the package cache alone."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import aiohttp
from aiohttp import web
from yarl import URL

from tests.support.package_cache import environ, serving
from tests.support.stack import free_port

Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]
CACHE: Final = "http://packages.rollbox.internal"
# As the sidecar sets them for every command where there is a cache.
SETTINGS: Final = {
    "PIP_INDEX_URL": f"{CACHE}/pypi.org/simple/",
    "PIP_TRUSTED_HOST": "packages.rollbox.internal",
    "UV_DEFAULT_INDEX": f"{CACHE}/pypi.org/simple/",
    "UV_INSECURE_HOST": "packages.rollbox.internal",
    "npm_config_registry": f"{CACHE}/registry.npmjs.org/",
    "GOPROXY": f"{CACHE}/proxy.golang.org",
}
# Where rustup keeps compilers, which is not below the home that programs have here.
TOOLCHAINS: Final = {"RUSTUP_HOME": os.environ.get("RUSTUP_HOME", str(Path.home() / ".rustup"))}
PATH: Final = f"{Path(sys.executable).parent}:{os.environ['PATH']}"


def why_no_program(program: str) -> str | None:
    """Why it cannot run here; None: it can."""
    return None if shutil.which(program, path=PATH) else f"this machine has no {program}"


@asynccontextmanager
async def proxy(folder: Path, answer: Handler, hosts: Mapping[str, str], *, until: str = "") -> AsyncIterator[int]:
    """The port of a proxy that leads to a cache in front of indexes.

    Args:
        folder: the cache keeps its files in `kept` there, and its log.
        answer: the indexes.
        hosts: host of an index -> the path at which `answer` has it.
        until: the date of the policy, for the cache.
    """
    async with _serving(answer) as index, aiohttp.ClientSession() as http:
        indexes = {host: f"http://127.0.0.1:{index}{path}" for host, path in hosts.items()}
        settings = environ(folder / "kept", free_port(), indexes)
        egress = _egress(http, f"http://{settings['ROLLBOX_PACKAGES_LISTEN']}", until)
        async with serving(settings), _serving(egress) as port:
            yield port


@asynccontextmanager
async def _serving(answer: Handler) -> AsyncIterator[int]:
    """The port of a server on the loopback."""
    runner = web.ServerRunner(web.Server(answer, access_log=None))
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield int(runner.addresses[0][1])
    finally:
        await runner.cleanup()


def _egress(http: aiohttp.ClientSession, cache: str, until: str) -> Handler:
    """What egress tells the cache of a request for it in absolute form, and refuses all else."""

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        if request.method != "GET" or not request.raw_path.startswith(f"{CACHE}/"):
            return web.Response(status=403)
        path = request.raw_path.removeprefix(CACHE)
        told = {name: value for name, value in request.headers.items() if name in ("Accept", "Range", "User-Agent")}
        told |= {"Host": "packages.rollbox.internal", "x-rollbox-index": path.split("/")[1]}
        told |= {"x-rollbox-until": until} if until else {}
        async with http.get(URL(f"{cache}{path}", encoded=True), headers=told, allow_redirects=False) as answered:
            kept = {name: value for name, value in answered.headers.items() if name in ("Content-Type", "Location")}
            return web.Response(status=answered.status, body=await answered.read(), headers=kept)

    return answer


async def run(command: str, folder: Path, port: int) -> tuple[int, str]:
    """Runs a command of the shell in a folder, with the proxy's port; returns its status, and what it has said."""
    java = " ".join(f"-D{scheme}.proxyHost=127.0.0.1 -D{scheme}.proxyPort={port}" for scheme in ("http", "https"))
    variables = dict.fromkeys(("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"), f"http://127.0.0.1:{port}")
    await asyncio.to_thread(folder.mkdir, exist_ok=True)
    ran = await asyncio.create_subprocess_exec(
        "bash",
        "-ec",
        command,
        cwd=folder,
        env={"PATH": PATH, "HOME": str(folder), "MAVEN_OPTS": java, **SETTINGS, **variables, **TOOLCHAINS},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    said, _ = await ran.communicate()
    assert ran.returncode is not None
    return ran.returncode, said.decode()
