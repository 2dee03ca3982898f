"""Nodes that give one another layers: the real program beside real containerds of a test's own, and a registry between.

What the registry sends passes a front, which counts it, can cut layers off and can be as slow as a line.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import aiohttp
from aiohttp import web

from tests.cluster.toolchain import SYSTEM_PATH, program
from tests.support.authority import Authority
from tests.support.node_agent import build
from tests.support.stack import free_port
from tests.support.waiting import until

NAME = "peers.rollbox.rollbox"
TOKEN = "a-token-of-these-tests"
CONTAINERD = """\
version = 3
root = "{folder}/root"
state = "{run}/state"
disabled_plugins = ["io.containerd.internal.v1.opt", "io.containerd.nri.v1.nri", "io.containerd.grpc.v1.cri"]
[grpc]
  address = "{run}/containerd.sock"
[ttrpc]
  address = "{run}/containerd.ttrpc"
"""
HOSTS = """\
server = "http://{registry}"
[host."http://{local}"]
  capabilities = ["pull"]
  [host."http://{local}".header]
    X-Rollbox-Peers = ["{token}"]
[host."http://{registry}"]
  capabilities = ["pull", "resolve"]
"""

_ASKED = ("Accept", "Range", "Authorization")
_KEPT = ("Content-Type", "Docker-Content-Digest", "Content-Length", "Www-Authenticate")


@dataclass
class Front:
    """Before a registry.

    Attributes:
        layers: how often each was asked for, by digest.
        sent: bytes of layers that it has sent.
        cut: no layer is given any more.
    """

    address: str = ""
    layers: list[str] = field(default_factory=list)
    sent: int = 0
    cut: bool = False


@asynccontextmanager
async def front(registry: str, tls: ssl.SSLContext | None = None) -> AsyncIterator[Front]:
    """A front before a registry while the block runs; `tls`: how the registry is spoken to, None: without TLS."""
    scheme = "https" if tls else "http"
    found = Front(f"127.0.0.1:{free_port('127.0.0.1')}")

    async def answer(request: web.Request) -> web.StreamResponse:
        _, is_layer, digest = request.path.partition("/blobs/")
        if is_layer:
            found.layers.append(digest)
            if found.cut:
                return web.Response(status=503)
        wanted = {
            name: request.headers[name] for name in ("Accept", "Range", "Authorization") if name in request.headers
        }
        url = f"{scheme}://{registry}{request.path_qs}"
        async with http.request(request.method, url, headers=wanted, ssl=tls or True) as asked:
            kept = {name: asked.headers[name] for name in _KEPT if name in asked.headers}
            told = web.StreamResponse(status=asked.status, headers=kept)
            await told.prepare(request)
            async for part in asked.content.iter_chunked(1 << 16):
                await told.write(part)
                found.sent += len(part) if is_layer else 0
            return told

    app = web.Application()
    app.router.add_get("/{path:.*}", answer)
    runner = web.AppRunner(app)
    async with aiohttp.ClientSession(auto_decompress=False) as http:
        await runner.setup()
        try:
            host, _, port = found.address.partition(":")
            await web.TCPSite(runner, host, int(port)).start()
            yield found
        finally:
            await runner.cleanup()


@dataclass
class PeerNode:
    """A node: its containerd, and beside it what gives others layers.

    Attributes:
        peer: the address for other nodes.
        local: the address for its containerd.
        metrics: of the program.
    """

    folder: Path
    run: Path
    peer: str
    local: str
    metrics: str

    @property
    def hosts(self) -> Path:
        """Its folder of registry hosts."""
        return self.folder / "certs.d"

    def knows(self, registry: str, *, peers: bool = True) -> None:
        """Tells its containerd where a registry is, and whom to ask before."""
        at = self.hosts / registry
        at.mkdir(parents=True, exist_ok=True)
        text = HOSTS.format(registry=registry, local=self.local, token=TOKEN)
        alone = f'server = "http://{registry}"\n[host."http://{registry}"]\n  capabilities = ["pull", "resolve"]\n'
        (at / "hosts.toml").write_text(text if peers else alone)

    async def ctr(self, *words: str) -> tuple[int, str]:
        """Runs containerd's client; its exit status, and what it said."""
        client = (program("containerd", "ctr"), "-a", f"{self.run}/containerd.sock", "-n", "k8s.io", *words)
        process = await asyncio.create_subprocess_exec(
            *client, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
        )
        said, _ = await asyncio.wait_for(process.communicate(), 120)
        return process.returncode or 0, said.decode()

    async def pull(self, image: str) -> tuple[int, str]:
        """Pulls an image, as a pod's start would: resolved, fetched and unpacked."""
        return await self.ctr("images", "pull", "--hosts-dir", str(self.hosts), image)

    async def counted(self, name: str) -> float:
        """One of the program's counters."""
        async with aiohttp.ClientSession() as http, http.get(f"http://{self.metrics}/metrics") as answer:
            lines = (await answer.text()).splitlines()
        return sum(float(line.split()[-1]) for line in lines if line.startswith(name))


@asynccontextmanager
async def peer_nodes(folder: Path, count: int, *, without: str = "") -> AsyncIterator[Sequence[PeerNode]]:
    """So many nodes while the block runs."""
    binary = build(folder)
    tls = Authority().write(folder / "tls", NAME)
    (folder / "token").write_text(TOKEN)
    nodes = [_made(folder / f"node-{number}") for number in range(count)]
    members = ",".join(one.peer for one in nodes)
    async with AsyncExitStack() as stack:
        for one in nodes:
            settings = {
                "SELF": one.peer,
                "MEMBERS": members,
                "LOCAL": one.local,
                "TOKEN_FILE": str(folder / "token"),
                "TLS": str(tls),
                "NAME": NAME,
                "CONTENT": str(one.folder / "root/io.containerd.content.v1.content"),
                "METRICS": one.metrics,
                "WITHOUT": without,
            }
            path = {"PATH": f"{Path(program('containerd')).parent}:{SYSTEM_PATH}"}
            told = {f"ROLLBOX_PEERS_{name}": value for name, value in settings.items()}
            containerd = (program("containerd"), "--config", str(one.folder / "containerd.toml"))
            await stack.enter_async_context(_running(one.folder / "containerd.log", containerd, path))
            await stack.enter_async_context(_running(one.folder / "peers.log", (str(binary), "peers"), path | told))
            stack.callback(shutil.rmtree, one.run, ignore_errors=True)
        for one in nodes:
            await until(partial(_answers, one), 30)
        yield nodes


def _made(folder: Path) -> PeerNode:
    run = Path(f"/run/rb-{os.urandom(3).hex()}")
    run.mkdir(mode=0o700)
    folder.mkdir()
    addresses = [f"127.0.0.1:{free_port('127.0.0.1')}" for _ in range(3)]
    node = PeerNode(folder, run, *addresses)
    (folder / "containerd.toml").write_text(CONTAINERD.format(folder=folder, run=run))
    return node


@asynccontextmanager
async def _running(log: Path, command: Sequence[str], environment: dict[str, str]) -> AsyncIterator[None]:
    with log.open("ab") as said:
        process = await asyncio.create_subprocess_exec(*command, env=environment, stdout=said, stderr=said)
    try:
        yield
    finally:
        process.terminate()
        await process.wait()


async def _answers(node: PeerNode) -> bool:
    await asyncio.sleep(0.1)
    try:
        await node.counted("rollbox_peers")
    except aiohttp.ClientError:
        return False
    return (await node.ctr("version"))[0] == 0
