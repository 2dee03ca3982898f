"""What the scenarios stand on: one Redis, one stagehand, control planes with a gateway each; all real processes."""

from __future__ import annotations

import asyncio
import os
import secrets
import shutil
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from controlplane.clock import SystemClock
from controlplane.embedded.binaries import gateway_command, required
from controlplane.lifecycle import SigningKey
from rollbox import Client
from rollbox.options import Resources, template_body
from tests.support.redis_server import redis_server
from tests.support.stack import free_port

API_KEY = "rbx_bench_0123456789abcdef"
READY_WITHIN_S = 120.0
# What a played sidecar takes to come up.
BOOT_MS = 50.0
IMAGE = "localhost/bench/played:1"
FEED_KEY = "ROLLBOX_CONTROLPLANE_FEED_KEY_FILE"
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass
class Stage:
    """The running product.

    Attributes:
        urls: of the gateways, one for each control plane.
        planes: the control planes, by their process ids.
        plane_urls: where they answer.
        gateways: the same of the gateways.
        folder: of all state.
        program: the module that is a control plane.
        checkout: where it is found, for a comparison with another commit.
        gateway: the program of a gateway of another version; empty: this checkout's.
        feeds: of the control planes, for egress.
    """

    folder: Path
    stack: AsyncExitStack
    redis_url: str
    key: SigningKey
    urls: list[str] = field(default_factory=list)
    planes: list[int] = field(default_factory=list)
    plane_urls: list[str] = field(default_factory=list)
    gateways: list[int] = field(default_factory=list)
    env: dict[str, str] = field(default_factory=dict)
    program: str = "tests.bench.lifecycle.plane"
    checkout: Path | None = None
    gateway: str = ""
    feeds: list[str] = field(default_factory=list)

    def client(self, number: int = 0) -> Client:
        """Make a client of one gateway; use it as a context manager."""
        return Client(self.urls[number], API_KEY)

    async def add_plane(self) -> None:
        """Start one more control plane, and a gateway that has its routes and forwards to it."""
        api, ready, routes, public = (free_port() for _ in range(4))
        # All of them share the folder: what was declared at one before another starts is known there, too.
        settings = {
            "STATE_DIR": str(self.folder),
            "ENGINE_URL": "unix:///dev/null",
            "SIDECAR_BINARY": "/bin/true",
            "TARGET_BINARY": "/bin/true",
            "API": f"127.0.0.1:{api}",
            "READY": f"127.0.0.1:{ready}",
            "ROUTES": f"127.0.0.1:{routes}",
            "API_KEYS": f"bench:{API_KEY}",
            "SIGNING_KEY_FILE": str(self.folder / "signing.key"),
            "STARTS_IN_FLIGHT": "1024",
            "REDIS_URL": self.redis_url,
        }
        plane = {f"ROLLBOX_CONTROLPLANE_{name}": value for name, value in settings.items()}
        stagehand = {"ROLLBOX_BENCH_STAGEHAND": str(self.folder / "stagehand.sock")}
        command = (sys.executable, "-m", self.program)
        started = await self._start(*command, env={**plane, **stagehand}, cwd=self.checkout)
        self.planes.append(started.pid)
        self.plane_urls.append(f"http://127.0.0.1:{api}")
        self.feeds.append(f"http://127.0.0.1:{routes}")
        gateway = {
            "LISTEN": f"127.0.0.1:{public}",
            "TOKEN_PUBLIC_KEY": self.key.public_text,
            "SETTINGS_KEY_FILE": str(self.folder / "settings.key"),
            "ROUTES_URL": f"http://127.0.0.1:{routes}",
            "CONTROLPLANE_URL": f"http://127.0.0.1:{api}",
            "LOG": "warn",
        }
        serving = (self.gateway,) if self.gateway else gateway_command()
        environ = {f"ROLLBOX_GATEWAY_{name}": value for name, value in gateway.items()}
        self.gateways.append((await self._start(*serving, env=environ)).pid)
        self.urls.append(f"http://127.0.0.1:{public}")
        await self._ready(f"{self.urls[-1]}/readyz")

    async def add_egress(self, plane: int) -> None:
        """Start a replica of egress that follows the feed of one control plane, and wait until it does."""
        socket = self.folder / f"egress-{plane}.sock"
        settings = {"FEED_URL": self.feeds[plane], "FEED_KEY_FILE": self.env[FEED_KEY], "LISTEN": str(socket)}
        environ = {f"ROLLBOX_EGRESS_{name}": value for name, value in {**settings, "LOG": "warn"}.items()}
        await self._start(str(required("egress", os.environ)), env=environ)
        await self._ready("http://egress/readyz", aiohttp.UnixConnector(str(socket)))

    async def fill(self, client: Client, name: str, count: int) -> None:
        """Declare a pool of so many warm sandboxes, for creates with the SDK's defaults; wait until they are ready."""
        body = {"template": template_body(IMAGE, Resources()), "min_warm": count, "max_warm": count, "auto": False}
        await client.gateway.call_api("PUT", "pools", name, body={**body, "starts_per_minute": 60_000})
        await self.filled(client, name, count)

    async def filled(self, client: Client, name: str, count: int) -> None:
        """Wait until a pool has so many ready."""
        async with asyncio.timeout(300):
            while (await client.gateway.call_api("GET", "pools", name))["status"]["ready"] < count:  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(0.25)

    def planes_cpu_s(self) -> float:
        """The processor time that all control planes have taken, also for their threads."""
        spent = [Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split() for pid in self.planes]
        return sum(int(user) + int(system) for *_, user, system in (one[:13] for one in spent)) / _TICKS

    async def _start(self, *command: str, env: dict[str, str], **options: Any) -> asyncio.subprocess.Process:
        log = (self.folder / "log").open("ab")
        process = await asyncio.create_subprocess_exec(
            *command, env={**os.environ, **self.env, **env}, stderr=log, **{"stdout": log, **options}
        )
        log.close()
        self.stack.push_async_callback(_end, process)
        return process

    async def _ready(self, url: str, way: aiohttp.BaseConnector | None = None) -> None:
        until = time.monotonic() + READY_WITHIN_S
        async with aiohttp.ClientSession(connector=way) as session:
            while time.monotonic() < until:
                try:
                    async with session.get(url) as answer:
                        if answer.status == 200:
                            return
                except aiohttp.ClientError:
                    pass
                await asyncio.sleep(0.1)
        raise RuntimeError(f"nobody is ready at {url}: {(self.folder / 'log').read_text()[-3000:]}")

    async def start_stagehand(self) -> None:
        """Start the played cluster."""
        command = (sys.executable, "-m", "tests.bench.lifecycle.stagehand", str(self.folder / "stagehand.sock"))
        linked = ("egress",) if FEED_KEY in self.env else ()
        made = await self._start(*command, str(BOOT_MS), *linked, env={}, stdout=asyncio.subprocess.PIPE)
        assert made.stdout is not None
        async with asyncio.timeout(READY_WITHIN_S):
            if not (await made.stdout.readline()).strip().isdigit():
                raise RuntimeError(f"the stagehand did not start: {(self.folder / 'log').read_text()[-3000:]}")


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        process.kill()
    await process.wait()


@asynccontextmanager
async def stage(planes: int = 1, *, egress: bool = False) -> AsyncIterator[Stage]:
    """A stage of its own with so many control planes; everything ends with the block.

    With `egress`, network policies are on offer; `add_egress` adds who puts them in force.
    """
    # Short on purpose: socket paths are limited to 107 bytes.
    folder = Path(tempfile.mkdtemp(prefix="rb-", dir="/tmp"))
    private = Ed25519PrivateKey.generate()
    (folder / "signing.key").write_bytes(private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    (folder / "settings.key").write_bytes(os.urandom(32))
    try:
        with redis_server(folder) as redis_url:
            async with AsyncExitStack() as stack:
                made = Stage(folder, stack, redis_url, SigningKey(private, SystemClock()))
                made.env |= _egress(folder) if egress else {}
                await made.start_stagehand()
                for _ in range(planes):
                    await made.add_plane()
                yield made
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _egress(folder: Path) -> dict[str, str]:
    """What control planes are told where egress is installed."""
    key = folder / "feed.key"
    key.write_text(secrets.token_urlsafe(32))
    return {FEED_KEY: str(key), "ROLLBOX_CONTROLPLANE_EGRESS_PORT": "3128"}
