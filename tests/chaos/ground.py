"""The product of a soak as processes that can be killed one by one and started again; all end with the block."""

from __future__ import annotations

import os
import random
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from controlplane.clock import SystemClock
from controlplane.embedded.binaries import gateway_command
from controlplane.lifecycle import SigningKey
from rollbox import Client, RetryPolicy
from tests.chaos import there
from tests.chaos.played import kept, on_cluster
from tests.chaos.processes import Processes
from tests.chaos.service import Service
from tests.support.stack import free_port

BOOT_MS = 60.0
STARTS = 8
OPERATOR = "ops"
OWNERS = ("ann", "bob")
PLANES = ("plane-0", "plane-1")
GATEWAYS = ("gateway-0", "gateway-1")


def api_key(owner: str) -> str:
    """The key of an owner."""
    return f"rbx_chaos_{owner}_0123456789"


@dataclass
class Ground(Processes):
    """Dependencies by name: `redis`, `cluster`, control planes, gateways; clients come and go."""

    seed: int
    key: SigningKey
    api: Service
    ready: Service
    routes: Service
    gateways: Mapping[str, Service]

    def url(self, gateway: str) -> str:
        """The address of a gateway; it stays the same when the gateway is another one.

        As behind a Service, it leads to one that is ready: one that has heard of no sandbox yet is asked for none.
        """
        return f"http://127.0.0.1:{self.gateways[gateway].port}"

    @property
    def owners(self) -> Sequence[str]:
        """Whose sandboxes the clients make."""
        return OWNERS

    async def on_cluster(self) -> dict[str, str]:
        """Whose each sandbox is that the cluster holds."""
        return await on_cluster(self.folder / "stagehand.sock")

    async def warm(self) -> int:
        """How many pools say that they keep; here only the control plane that plans them knows: each has its file."""
        return max([await kept(f"http://127.0.0.1:{port}", api_key(OPERATOR)) for port in self.api.backends.values()])

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
        await self._started(name, env, ports["api"])
        for service, port in ports.items():
            getattr(self, service).backends[name] = port

    async def _started(self, name: str, env: Mapping[str, str], port: int) -> None:
        """Start it, as a kubelet does, once more when it has ended: it does where its store goes while it starts."""
        for left in range(STARTS, 0, -1):
            await self.start(name, (sys.executable, "-m", "tests.chaos.plane"), env)
            try:
                await self.until(name, lambda: there.listens(port))
            except RuntimeError:
                if left == 1 or self.parts[name].returncode is None:
                    raise
            else:
                return

    async def start_gateway(self, name: str) -> None:
        """Start a gateway behind its address."""
        port = free_port()
        settings = {
            "LISTEN": f"127.0.0.1:{port}",
            "TOKEN_PUBLIC_KEY": self.key.public_text,
            "SETTINGS_KEY_FILE": str(self.folder / "settings.key"),
            "ROUTES_URL": f"http://127.0.0.1:{self.routes.port}",
            "CONTROLPLANE_URL": f"http://127.0.0.1:{self.api.port}",
            "LOG": "warn",
        }
        await self.start(name, gateway_command(), {f"ROLLBOX_GATEWAY_{key}": value for key, value in settings.items()})
        await self.until(name, lambda: there.answers(f"http://127.0.0.1:{port}/readyz"))
        self.gateways[name].backends[name] = port

    async def kill(self, name: str) -> None:
        """Kill a part without a word; its place is empty then, in its Services too."""
        await super().kill(name)
        for service in (self.api, self.ready, self.routes, *self.gateways.values()):
            service.backends.pop(name, None)


@asynccontextmanager
async def ground(seed: int) -> AsyncIterator[Ground]:
    """A product of one control plane and one gateway, empty; all that is started on it ends with the block."""
    # Short on purpose: socket paths are limited to 107 bytes.
    folder = Path(tempfile.mkdtemp(prefix="rb-", dir="/tmp"))
    private = Ed25519PrivateKey.generate()
    (folder / "settings.key").write_bytes(os.urandom(32))
    (folder / "signing.key").write_bytes(private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    try:
        async with AsyncExitStack() as stack:
            api, ready, routes, *fronts = [
                await stack.enter_async_context(Service(random.Random(seed + number)).serving())
                for number in range(3 + len(GATEWAYS))
            ]
            key, gateways = SigningKey(private, SystemClock()), dict(zip(GATEWAYS, fronts, strict=True))
            made = Ground(folder, seed, key, api, ready, routes, gateways)
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
