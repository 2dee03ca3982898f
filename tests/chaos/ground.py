"""The product of a soak as processes that can be killed one by one and started again; all end with the block."""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from controlplane.clock import SystemClock
from controlplane.embedded.binaries import gateway_command
from controlplane.lifecycle import SigningKey
from rollbox import Client, RetryPolicy
from tests.chaos import there
from tests.chaos.service import Service
from tests.support.stack import free_port

UP_WITHIN_S = 120.0
BOOT_MS = 60.0
OPERATOR = "ops"
OWNERS = ("ann", "bob")
PLANES = ("plane-0", "plane-1")
GATEWAYS = ("gateway-0", "gateway-1")


def api_key(owner: str) -> str:
    """The key of an owner."""
    return f"rbx_chaos_{owner}_0123456789"


@dataclass
class Ground:
    """Parts by name: `redis`, `cluster`, control planes, gateways; clients come and go."""

    folder: Path
    seed: int
    key: SigningKey
    api: Service
    ready: Service
    routes: Service
    parts: dict[str, asyncio.subprocess.Process] = field(default_factory=dict)
    gateways: dict[str, int] = field(default_factory=dict)

    def url(self, gateway: str) -> str:
        """The address of a gateway; it stays the same when the gateway is another one."""
        return f"http://127.0.0.1:{self.gateways.setdefault(gateway, free_port())}"

    def client(self, owner: str, gateway: str = GATEWAYS[0]) -> Client:
        """Make a client of the judge's; use it as a context manager."""
        return Client(self.url(gateway), api_key(owner), retries=RetryPolicy(tries=30, budget_s=60))

    async def start_redis(self, *, empty: bool = False) -> None:
        """Start the store, with what it has written down before or without."""
        data, socket = self.folder / "redis", self.folder / "redis.sock"
        if empty:
            shutil.rmtree(data, ignore_errors=True)
        data.mkdir(exist_ok=True)
        kept = ("--appendonly", "yes", "--appendfsync", "everysec", "--save", "", "--dir", str(data))
        await self.start("redis", ("redis-server", "--port", "0", "--unixsocket", str(socket), *kept), {})
        await self.until("redis", lambda: there.pong(socket))

    async def start_cluster(self) -> None:
        """Start the played cluster; it is the witness, and never killed."""
        command = ("-m", "tests.chaos.cluster", str(self.folder / "stagehand.sock"), str(BOOT_MS), str(self.seed))
        await self.start("cluster", (sys.executable, *command, str(self.folder / "cluster.events")), {})
        await self.until("cluster", lambda: there.opens(self.folder / "stagehand.sock"))

    async def start_plane(self, name: str) -> None:
        """Start a control plane at ports of its own, as a pod that takes the place of another one."""
        ports = {service: free_port() for service in ("api", "ready", "routes")}
        state = self.folder / name
        state.mkdir(exist_ok=True)
        settings = {
            **{service.upper(): f"127.0.0.1:{port}" for service, port in ports.items()},
            "STATE_DIR": str(state),
            "ENGINE_URL": "unix:///dev/null",
            "SIDECAR_BINARY": "/bin/true",
            "TARGET_BINARY": "/bin/true",
            "API_KEYS": ",".join(f"{owner}:{api_key(owner)}" for owner in (OPERATOR, *OWNERS)),
            "OPERATORS": OPERATOR,
            "SIGNING_KEY_FILE": str(self.folder / "signing.key"),
            "STARTS_IN_FLIGHT": "64",
            "PROBE_EVERY_MS": "5000",
            "GATEWAY_URL": self.url(GATEWAYS[0]),
            "REDIS_URL": f"unix://{self.folder / 'redis.sock'}",
        }
        env = {f"ROLLBOX_CONTROLPLANE_{key}": value for key, value in settings.items()}
        env |= {"ROLLBOX_BENCH_STAGEHAND": str(self.folder / "stagehand.sock")}
        env |= {"ROLLBOX_BENCH_READY_PORT": str(self.ready.port)}
        await self.start(name, (sys.executable, "-m", "tests.bench.lifecycle.plane"), env)
        await self.until(name, lambda: there.listens(ports["api"]))
        for service, port in ports.items():
            getattr(self, service).backends[name] = port

    async def start_gateway(self, name: str) -> None:
        """Start a gateway at its address."""
        port = self.gateways.setdefault(name, free_port())
        settings = {
            "LISTEN": f"127.0.0.1:{port}",
            "TOKEN_PUBLIC_KEY": self.key.public_text,
            "ROUTES_URL": f"http://127.0.0.1:{self.routes.port}",
            "CONTROLPLANE_URL": f"http://127.0.0.1:{self.api.port}",
            "LOG": "warn",
        }
        await self.start(name, gateway_command(), {f"ROLLBOX_GATEWAY_{key}": value for key, value in settings.items()})
        await self.until(name, lambda: there.answers(f"{self.url(name)}/readyz"))

    async def start(self, name: str, command: Sequence[str], env: Mapping[str, str]) -> asyncio.subprocess.Process:
        """Start a process, whose words go to the file NAME.log."""
        with (self.folder / f"{name}.log").open("ab") as log:
            making = asyncio.ensure_future(
                asyncio.create_subprocess_exec(
                    *command, env={**os.environ, **env}, stdin=asyncio.subprocess.DEVNULL, stdout=log, stderr=log
                )
            )
            try:
                await asyncio.shield(making)
            finally:
                # Also when this was cancelled: a process that nobody knows nobody ends.
                self.parts[name] = await making
        return self.parts[name]

    async def kill(self, name: str) -> None:
        """Kill a part without a word; its place is empty then."""
        process = self.parts.pop(name)
        if process.returncode is None:
            process.kill()
        await process.wait()
        for service in (self.api, self.ready, self.routes):
            service.backends.pop(name, None)

    def fallen(self) -> list[str]:
        """Parts that have ended by themselves, with their last words."""
        return [
            f"{name} ended by itself with {process.returncode}: {self._words(name)}"
            for name, process in self.parts.items()
            if process.returncode is not None
        ]

    async def until(self, name: str, up: Callable[[], Awaitable[bool]]) -> None:
        """Wait until a part is up; RuntimeError with its last words when it does not come."""
        until_s = time.monotonic() + UP_WITHIN_S
        while not await up():
            if time.monotonic() > until_s or self.parts[name].returncode is not None:
                raise RuntimeError(f"{name} did not start: {self._words(name)}")
            await asyncio.sleep(0.05)

    def _words(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text()[-2000:]


@asynccontextmanager
async def ground(seed: int) -> AsyncIterator[Ground]:
    """A product of one control plane and one gateway, empty; all that is started on it ends with the block."""
    # Short on purpose: socket paths are limited to 107 bytes.
    folder = Path(tempfile.mkdtemp(prefix="rb-", dir="/tmp"))
    private = Ed25519PrivateKey.generate()
    (folder / "signing.key").write_bytes(private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    try:
        async with AsyncExitStack() as stack:
            api, ready, routes = [
                await stack.enter_async_context(Service(random.Random(seed + number)).serving()) for number in range(3)
            ]
            made = Ground(folder, seed, SigningKey(private, SystemClock()), api, ready, routes)
            try:
                await made.start_redis()
                await made.start_cluster()
                await made.start_plane(PLANES[0])
                await made.start_gateway(GATEWAYS[0])
                yield made
            finally:
                for name in [*made.parts]:
                    await made.kill(name)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
