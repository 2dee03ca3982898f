"""A release with a small private registry and peers, an upstream registry that its nodes do not know, and its disk."""

from __future__ import annotations

import asyncio
import base64
import gzip
import json
import os
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from controlplane.registry import CollectorClient
from tests.cluster import images as registry
from tests.cluster.layout import KUBELET, REGISTRY
from tests.cluster.layout import STATE as CLUSTER
from tests.cluster.settings import trusted
from tests.cluster.smoke import APPLETS
from tests.support.installed import (
    BESIDE_ANOTHER,
    ONE_OF_EACH,
    OWNERS,
    Installed,
    apply,
    installed,
    kubectl,
    node_address,
)
from tests.support.private_registry import told, upstream, values
from tests.support.stack import free_port

RELEASE = "rollbox-registry"
MIB = 1 << 20
# Of the registry; it is full when less than a twentieth is free.
SIZE_MIB = 24
FULL_MIB = 23.4
SHELL = Path("/bin/busybox")
# Where images are that one owner alone has credentials for.
OWNED = "owned"


@dataclass(frozen=True)
class Ports:
    """Of the node, free when the release is installed."""

    pull: int
    push: int
    collector: int
    upstream: int
    odd: int
    peers: int
    local: int
    metrics: int


@dataclass(frozen=True)
class Place:
    """The release, and where its parts are.

    Attributes:
        address: of the node.
        folder: for the upstream registry's settings, and a client's certificates.
    """

    stack: Installed
    address: str
    ports: Ports
    folder: Path

    @property
    def upstream(self) -> str:
        """Host and port of the upstream registry."""
        return f"{self.address}:{self.ports.upstream}"

    def open(self, *, account: bool = False) -> AbstractContextManager[None]:
        """The upstream registry answers while the block runs."""
        return upstream(self.folder, self.address, self.ports.upstream, account=account)

    def image(self, repository: str, size: int = MIB) -> str:
        """The upstream name of an image that nobody has seen: a shell, and `size` bytes that cannot be compressed."""
        (self.folder / "data").write_bytes(os.urandom(size))
        name = f"{REGISTRY}/{repository}:{os.urandom(8).hex()}"
        files = {"bin/busybox": SHELL, "srv/data": self.folder / "data"}
        registry.push(name, files, ["/bin/sh"], {f"bin/{one}": "busybox" for one in APPLETS})
        return name.replace(REGISTRY, self.upstream)

    async def credentials(self, of: str, account: str = "user:password") -> None:
        """Gives the first owner credentials of its own for a registry or repository: a name without a tag."""
        auths = {"auths": {of: {"auth": base64.b64encode(account.encode()).decode()}}}
        body = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": "private"},
            "type": "kubernetes.io/dockerconfigjson",
            "stringData": {".dockerconfigjson": json.dumps(auths)},
        }
        await apply(body, namespace=self.stack.sandboxes)

    @asynccontextmanager
    async def collector(self) -> AsyncIterator[CollectorClient]:
        """The client of the control plane, here, with its certificate."""
        name = f"{self.stack.release}-registry"
        data = await secret(self.stack, f"{name}-authority")
        folder = self.folder / "control-plane"
        folder.mkdir(exist_ok=True)
        for file, entry in {"ca.crt": "tls.crt", "tls.crt": "client.crt", "tls.key": "client.key"}.items():
            (folder / file).write_bytes(data[entry])
        host = f"{name}.{self.stack.namespace}.svc.cluster.local"
        async with CollectorClient.open(f"{self.address}:{self.ports.collector}", folder, host) as client:
            yield client

    async def storage(self) -> Path:
        """The registry's files, which are on this machine."""
        (pod,) = await self.stack.component("registry")
        return KUBELET / "pods" / str(pod["metadata"]["uid"]) / "volumes/kubernetes.io~empty-dir/data"

    async def bytes_to_full(self) -> int:
        """The size of an image that fills it, but for the shell in it."""
        paths = [*(await self.storage()).rglob("*")]
        used = sum(path.lstat().st_blocks * 512 for path in paths)
        return int(FULL_MIB * MIB) - used - _packed_shell()

    async def aged(self) -> None:
        """Everything in it was there, and used last, two hours ago."""
        at_s = time.time() - 7200
        for path in (await self.storage()).rglob("*"):
            os.utime(path, (at_s, at_s), follow_symlinks=False)


def _packed_shell() -> int:
    """The bytes of the shell in an image's layer."""
    return len(gzip.compress(SHELL.read_bytes(), 1))


async def secret(stack: Installed, name: str) -> dict[str, bytes]:
    """The entries of a Secret of a release."""
    found = json.loads(await kubectl("get", "secret", name, "-n", stack.namespace, "-o", "json"))["data"]
    return {key: base64.b64decode(value) for key, value in found.items()}


async def images(stack: Installed, sandbox_id: str) -> list[str]:
    """What the pod of a sandbox was given, its sidecar left out."""
    pod = json.loads(await kubectl("get", "pod", sandbox_id, "-n", stack.sandboxes, "-o", "json"))
    return [one["image"] for one in pod["spec"]["containers"] if one["name"] != "sidecar"]


@contextmanager
def private_place(folder: Path) -> Iterator[tuple[Place, asyncio.Runner]]:
    """It while the block runs, for all tests of a module: an install takes longer than most of them."""
    with asyncio.Runner() as runner:
        opening = _opened(folder)
        place = runner.run(opening.__aenter__())
        try:
            yield place, runner
        finally:
            runner.run(opening.__aexit__(None, None, None))


@asynccontextmanager
async def _opened(folder: Path) -> AsyncIterator[Place]:
    address = await node_address()
    ports = Ports(*(free_port(address) for _ in range(8)))
    chosen = (
        *BESIDE_ANOTHER,
        *ONE_OF_EACH,
        # A secret that has changed is read by each of them.
        "controlplane.replicas=2",
        # So it runs without another release as well.
        "runtimeClass.create=true",
        f"runtimeClass.name={RELEASE}",
        *values(address, ports.pull, ports.push, ports.upstream),
        f"registry.collectorPort={ports.collector}",
        f"registry.persistence.size={SIZE_MIB}Mi",
        f"sandboxes.images.plainHttpRegistries[1]={address}:{ports.odd}",
        f"sandboxes.ownerPullSecrets.{OWNERS[0]}[0]=private",
        "registry.peers.enabled=true",
        f"registry.peers.port={ports.peers}",
        f"registry.peers.localPort={ports.local}",
        f"registry.peers.metricsPort={ports.metrics}",
        f"registry.peers.content={CLUSTER / 'containerd/io.containerd.content.v1.content'}",
        "registry.peers.resources.requests.cpu=5m",
    )
    async with installed(RELEASE, *chosen) as stack:
        place = Place(stack, address, ports, folder)
        await place.credentials(f"{place.upstream}/{OWNED}")
        host, _, authority = await told(stack)
        hosts = (await secret(stack, f"{RELEASE}-peers"))["hosts.toml"].decode()
        with trusted(host, hosts, authority):
            yield place
