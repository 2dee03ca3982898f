"""The product of a simulation: control planes and gateways as in a cluster, each at an address and standard ports."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from controlplane.clock import SystemClock
from controlplane.embedded.binaries import gateway_command
from controlplane.lifecycle import SigningKey
from rollbox import Client, RetryPolicy
from tests.chaos import there
from tests.chaos.processes import Processes
from tests.scale import cluster, services

OWNER, API_KEY = "trainer", "rbx_scale_0123456789abcdef"
PLANES, GATEWAYS = "10.97.0.5", "10.97.0.6"
# What a rolling update leaves a part that was asked to stop.
STOPS_WITHIN_S = 75.0


@dataclass
class Product(Processes):
    """Parts by name: `plane-0`, `gateway-1`, ...

    The Services are the addresses `PLANES` and `GATEWAYS`, and one for each gateway.

    Attributes:
        key: signs tokens of sandboxes.
        kubeconfig: with the account of the control planes.
        addresses: of the control planes and gateways, by name.
        settings: of the control planes, beside the chart's.
        made: how many addresses have been given away.
    """

    key: SigningKey
    kubeconfig: Path
    addresses: dict[str, str] = field(default_factory=dict)
    settings: dict[str, str] = field(default_factory=dict)
    made: int = 0

    def pids(self) -> dict[str, int]:
        """The processes that run now, by name."""
        made = {name: one.pid for name, one in self.parts.items() if one.returncode is None}
        return {**made, "clients": os.getpid()}

    def client(self, gateway: str) -> Client:
        """Make a client of one gateway, and of what takes its place; use it as a context manager."""
        return Client(f"http://{_own_service(gateway)}:8080", API_KEY, retries=RetryPolicy(tries=30, budget_s=120))

    def client_of_all(self) -> Client:
        """Make a client of the gateways' Service."""
        return Client(f"http://{GATEWAYS}:8080", API_KEY, retries=RetryPolicy(tries=30, budget_s=120))

    async def start_redis(self) -> None:
        """Start the store, as the chart configures it."""
        data, socket = self.folder / "redis", self.folder / "redis.sock"
        data.mkdir()
        kept = ("--appendonly", "yes", "--appendfsync", "everysec", "--save", "", "--dir", str(data))
        await self.start("redis", ("redis-server", "--port", "0", "--unixsocket", str(socket), *kept), {})
        await self.until("redis", lambda: there.pong(socket))

    async def start_plane(self, name: str) -> None:
        """Start a control plane, as a pod that may take the place of another one."""
        address = self._address()
        own = {
            **{service: f"{address}:{port}" for service, port in (("API", 8081), ("READY", 8082), ("ROUTES", 8083))},
            "KUBECONFIG": str(self.kubeconfig),
            "READY_URL": f"http://{PLANES}:8082",
            "GATEWAY_URL": f"http://{GATEWAYS}:8080",
            "REDIS_URL": f"unix://{self.folder / 'redis.sock'}",
            "API_KEYS": f"{OWNER}:{API_KEY}",
            "SIGNING_KEY_FILE": str(self.folder / "signing.key"),
        }
        env = {**await asyncio.to_thread(cluster.plane_settings)}
        env |= {f"ROLLBOX_CONTROLPLANE_{name}": value for name, value in own.items()} | self.settings
        await self.start(name, (sys.executable, "-m", "controlplane"), env)
        await self.until(name, lambda: there.answers(f"http://{address}:8081/readyz"))
        self._serves(name, address)

    async def start_gateway(self, name: str) -> None:
        """Start a gateway."""
        address = self._address()
        settings = {
            "LISTEN": f"{address}:8080",
            "TOKEN_PUBLIC_KEY": self.key.public_text,
            "SETTINGS_KEY_FILE": str(self.folder / "settings.key"),
            "ROUTES_URL": f"http://{PLANES}:8083",
            "CONTROLPLANE_URL": f"http://{PLANES}:8081",
            "LOG": "warn",
        }
        await self.start(name, gateway_command(), {f"ROLLBOX_GATEWAY_{key}": value for key, value in settings.items()})
        await self.until(name, lambda: there.answers(f"http://{address}:8080/readyz"))
        self._serves(name, address)

    async def replace(self, name: str) -> None:
        """A rolling update of one part: another one comes first, then this one leaves its Service, and stops."""
        kind = name.partition("-")[0]
        old, address = self.parts.pop(name), self.addresses.pop(name)
        self.parts[f"old_{name}"] = old
        await (self.start_plane(name) if kind == "plane" else self.start_gateway(name))
        old.send_signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(STOPS_WITHIN_S):
                await old.wait()
        except TimeoutError as late:
            raise RuntimeError(f"{name} at {address} has not stopped {STOPS_WITHIN_S} s after SIGTERM") from late
        del self.parts[f"old_{name}"]

    def _address(self) -> str:
        self.made += 1
        return f"10.98.0.{self.made}"

    def _serves(self, name: str, address: str) -> None:
        self.addresses[name] = address
        of = {kind: [at for one, at in self.addresses.items() if one.startswith(kind)] for kind in ("plane", "gateway")}
        own = {_own_service(one): [at] for one, at in self.addresses.items() if one.startswith("gateway")}
        services.put({PLANES: of["plane"], GATEWAYS: of["gateway"], **own})


def _own_service(gateway: str) -> str:
    return f"10.97.1.{gateway.partition('-')[2]}"


@asynccontextmanager
async def product(folder: Path, *, names: bool = True) -> AsyncIterator[Product]:
    """A cluster with the chart's objects, and no part of the product yet; all that is started ends with the block."""
    made = Product(folder, _prepared(folder), folder / "controlplane.kubeconfig")
    try:
        await cluster.start(made, names=names)
        await asyncio.to_thread(cluster.account, folder)
        yield made
    finally:
        for name in [*made.parts]:
            await made.kill(name)


def _prepared(folder: Path) -> SigningKey:
    """An empty folder with keys; the one that signs."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    private = Ed25519PrivateKey.generate()
    (folder / "settings.key").write_bytes(os.urandom(32))
    (folder / "signing.key").write_bytes(private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    return SigningKey(private, SystemClock())
