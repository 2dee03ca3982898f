"""A node of a test's own that the installer has given gVisor and lazy pulling: its agent, and a registry for it."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import hashlib
import json
import os
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp

from controlplane.cluster.kubernetes.node_agents import NodeAgents
from controlplane.cluster.kubernetes.node_agents.addresses import Addresses
from controlplane.errors import Problem
from controlplane.settings import NodeAgentSettings
from controlplane.wire import node_pb2
from tests.cluster.toolchain import program
from tests.support.authority import Authority
from tests.support.bare_node import BareNode, bare_node
from tests.support.node_agent import CLIENT, SERVER, running
from tests.support.odd_images import archive
from tests.support.registry import CONFIG, LAYER, MANIFEST, Pusher, digest, registry_server
from tests.support.stack import free_port

NODE = "node-1"
FILES = 8
FILE_BYTES = 1 << 20


@dataclass
class Place:
    """All of it.

    Attributes:
        node: without Kubernetes.
        agents: the control plane's client of its agent.
        registry: host and port.
        folder: of the registry.
    """

    node: BareNode
    agents: NodeAgents
    registry: str
    folder: Path
    sums: dict[str, list[str]] = field(default_factory=dict)
    serving: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)

    def open(self) -> None:
        """Starts the registry, with what it has had."""
        self.serving.enter_context(registry_server(self.folder, self.registry))

    def away(self) -> None:
        """Ends it."""
        self.serving.close()

    async def pushed(self, file_bytes: int = FILE_BYTES) -> str:
        """The name of an image that no node has: a shell, and files that nothing reads by itself."""
        files = {f"srv/{number}": os.urandom(file_bytes) for number in range(FILES)}
        sums = [hashlib.md5(one).hexdigest() for one in files.values()]
        layer = archive({"bin/busybox": await asyncio.to_thread(Path("/bin/busybox").read_bytes), **files})
        rootfs = {"type": "layers", "diff_ids": [digest(layer)]}
        config = json.dumps({"architecture": "amd64", "os": "linux", "config": {}, "rootfs": rootfs}).encode()
        name, packed = os.urandom(4).hex(), gzip.compress(layer, compresslevel=1)
        async with aiohttp.ClientSession() as http:
            parts: dict[str, tuple[str, bytes] | list[tuple[str, bytes]]] = {
                "config": (CONFIG, config),
                "layers": [(LAYER, packed)],
            }
            found = await Pusher(http, self.registry, {}).manifest(f"plain/{name}", "1", MANIFEST, parts)
        self.sums[name] = sums
        return f"{self.registry}/plain/{name}@{found}"

    def content(self, image: str) -> list[str]:
        """The sums of its files, in the order of their names."""
        return self.sums[image.removeprefix(f"{self.registry}/").split("/")[1].partition("@")[0].partition(":")[0]]

    async def converted(self, plain: str) -> str:
        """The same image in the form that the node mounts lazily."""
        named = plain.partition("@")[0].replace("/plain/", "/estargz/") + ":1"
        convert = program("snapshotter", "rollbox-convert")
        process = await asyncio.create_subprocess_exec(
            convert, "-insecure", plain, named, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
        )
        out, err = await process.communicate()
        assert process.returncode == 0, err.decode()
        return out.decode().strip()

    async def layer(self, image: str) -> Path:
        """The file of its only layer, in the registry's storage."""
        name, _, at = image.removeprefix(f"{self.registry}/").partition("@")
        async with (
            aiohttp.ClientSession(headers={"Accept": MANIFEST}) as http,
            http.get(f"http://{self.registry}/v2/{name.partition(':')[0]}/manifests/{at}") as answer,
        ):
            (one,) = json.loads(await answer.text())["layers"]
        digits = one["digest"].partition(":")[2]
        return self.folder / f"storage/docker/registry/v2/blobs/sha256/{digits[:2]}/{digits}/data"

    async def pull(self, image: str, handler: str = "runsc") -> Problem | None:
        """Has the node pull it as for a pod; why it could not."""
        try:
            async with asyncio.timeout(120):
                async for _ in self.agents.prefetch(NODE, image, None, handler):
                    pass
        except Problem as problem:
            return problem
        return None

    async def troubles(self) -> list[str]:
        """What the agent tells of what keeps sandboxes from the node."""
        told: node_pb2.Description = await self.agents.describe(NODE)
        return list(told.health.troubles)


@contextlib.asynccontextmanager
async def place(folder: Path, programs: Path, limits: Mapping[str, str] | None = None) -> AsyncIterator[Place]:
    """It while the block runs; `limits` as of ``bare_node``."""
    registry = f"127.0.0.1:{free_port('127.0.0.1')}"
    (folder / "registry").mkdir()
    async with bare_node(folder, programs, limits=limits) as node:
        node.told |= {"LAZY_HANDLER": "runsc-lazy", "LAZY_IMAGES": f"{registry}/estargz/"}
        done = await node.run_installer("install")
        assert done.status == 0, done.log
        authority = Authority()
        settings = {
            "TLS": str(authority.write(folder / "server", SERVER)),
            "CONTAINERD": f"{node.run}/containerd.sock",
            "HANDLERS": "runsc,runsc-lazy",
            "IMAGES": str(folder / "containerd"),
            "INSTALLED": str(node.opt / "state"),
            "MOUNTS": f"{node.run}/snapshotter/mounts.sock",
        }
        async with running(node.payload / "rollbox-node", settings) as agent:
            addresses = Addresses()
            host, _, port = agent.address.rpartition(":")
            ready = [{"nodeName": NODE, "addresses": [host], "conditions": {"ready": True}}]
            addresses.put({"metadata": {"name": "a"}, "ports": [{"port": int(port)}], "endpoints": ready})
            tls = authority.write(folder / "client", CLIENT)
            agents = NodeAgents(addresses, NodeAgentSettings("rollbox", "rollbox-node", SERVER, tls))
            made = Place(node, agents, registry, folder / "registry")
            with made.serving:
                made.open()
                yield made
            await agents.close()


@contextlib.contextmanager
def changed(path: Path, at: int, content: bytes) -> Iterator[None]:
    """A file that is another one while the block runs."""
    before = path.read_bytes()
    path.write_bytes(before[:at] + content + before[at + len(content) :])
    try:
        yield
    finally:
        path.write_bytes(before)
