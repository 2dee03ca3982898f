"""Nodes that all pull one new image at once, with and without giving one another its layers.

python -m tests.bench.peers [NODES]

Each node is a network namespace with a line of its own, in which the real program runs; containerd is played: it asks
as containerd does, three layers at once, and keeps what comes where the program looks. The registry is behind such a
line too. Bytes and bandwidths are a fortieth of those of an image of 500 MB and lines of 1 Gbit/s, so that the times
are the same as far as the lines decide them, and the machine, which plays all nodes, decides little. It needs root.
"""

from __future__ import annotations

import ctypes
import hashlib
import http.client
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.bench.record import Baseline, Record, distribution, save
from tests.cluster.toolchain import SYSTEM_PATH
from tests.support.authority import Authority
from tests.support.node_agent import build
from tests.support.peers import NAME, TOKEN

NODES = 50
LAYERS, LAYER_BYTES = 5, 2_500_000
MBIT = 25
AT_ONCE = 3
SWITCH, REGISTRY = "rbx-pswitch", "10.97.255.1"
PEER_PORT, LOCAL_PORT, REGISTRY_PORT = 5447, 5448, 5000
UP_WITHIN_S = 120.0
CLONE_NEWNET = 0x40000000


@dataclass(frozen=True)
class Place:
    """A namespace: of a node, or of the registry."""

    name: str
    address: str

    def enter(self) -> None:
        """The calling thread goes there, and stays."""
        with Path(f"/run/netns/{self.name}").open() as at:
            if ctypes.CDLL("libc.so.6", use_errno=True).setns(at.fileno(), CLONE_NEWNET):
                raise OSError(ctypes.get_errno(), f"namespace {self.name}")

    def received_bytes(self) -> int:
        """What has come from it."""
        told = subprocess.run(
            ["ip", "-n", SWITCH, "-json", "-stats", "link", "show", "dev", self.name], check=True, capture_output=True
        )
        return int(json.loads(told.stdout)[0]["stats64"]["rx"]["bytes"])


def _ip(place: str, *lines: str) -> None:
    subprocess.run(["ip", "-n", place, "-batch", "-"], input="\n".join(lines), text=True, check=True)


@contextmanager
def lines(count: int) -> Iterator[tuple[Place, Sequence[Place]]]:
    """The registry's place and those of the nodes, each with a line to all others."""
    places = [Place(f"rbx-p{number}", f"10.97.{number // 250}.{number % 250 + 1}") for number in range(count)]
    registry = Place("rbx-preg", REGISTRY)
    try:
        # The bridge is in a namespace too: what filters this machine's packets is not asked there.
        for name in (SWITCH, registry.name, *(one.name for one in places)):
            subprocess.run(["ip", "netns", "add", name], check=True)
        _ip(SWITCH, "link add bridge type bridge", "link set bridge up")
        for one in (registry, *places):
            _lay(one)
        yield registry, places
    finally:
        for name in (registry.name, *(one.name for one in places), SWITCH):
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)


def _lay(place: Place) -> None:
    name = place.name
    _ip(SWITCH, f"link add {name} type veth peer name eth0 netns {name}", f"link set {name} master bridge up")
    shape = ("root", "tbf", "rate", f"{MBIT}mbit", "burst", "256kb", "latency", "100ms")
    subprocess.run(["tc", "-n", SWITCH, "qdisc", "add", "dev", name, *shape], check=True)
    _ip(name, f"addr add {place.address}/16 dev eth0", "link set eth0 up", "link set lo up")
    subprocess.run(["tc", "-n", name, "qdisc", "add", "dev", "eth0", *shape], check=True)


@contextmanager
def _process(place: Place, log: Path, *command: str, **environment: str) -> Iterator[None]:
    inside = ("ip", "netns", "exec", place.name, *command)
    with log.open("ab") as said:
        process = subprocess.Popen(inside, env={"PATH": SYSTEM_PATH, **environment}, stdout=said, stderr=said)
    try:
        yield
    finally:
        process.terminate()
        process.wait()


class Node:
    """A node whose containerd is played."""

    def __init__(self, place: Place, folder: Path, blobs: Path) -> None:
        self.place = place
        self.folder = folder
        self._blobs = blobs
        self._here = folder / "content/blobs/sha256"
        self._here.mkdir(parents=True)

    def pull(self, layers: Sequence[str], *, peers: bool, begin: threading.Barrier) -> float:
        """Fetches all layers, and returns how long that took."""
        with ThreadPoolExecutor(AT_ONCE, initializer=self.place.enter) as turns:
            begin.wait()
            began = time.perf_counter()
            list(turns.map(lambda digest: self._layer(digest, peers=peers), layers))
        return time.perf_counter() - began

    def _layer(self, digest: str, *, peers: bool) -> None:
        path = f"/v2/team/app/blobs/{digest}"
        while not (peers and self._got("127.0.0.1", LOCAL_PORT, f"{path}?ns=registry.test")):
            if self._got(REGISTRY, REGISTRY_PORT, path):
                break
        name = digest.removeprefix("sha256:")
        # It is the same file for all nodes: what has come was compared with the digest on the way.
        (self._here / name).hardlink_to(self._blobs / digest)

    def _got(self, host: str, port: int, path: str) -> bool:
        connection = http.client.HTTPConnection(host, port, timeout=600)
        try:
            connection.request("GET", path, headers={"X-Rollbox-Peers": TOKEN})
            answer, size = connection.getresponse(), 0
            while part := answer.read(1 << 18):
                size += len(part)
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()
        return answer.status == http.client.OK and size == LAYER_BYTES


def _answers(place: Place, port: int) -> None:
    def ask() -> None:
        place.enter()
        until_s = time.monotonic() + UP_WITHIN_S
        while time.monotonic() < until_s:
            connection = http.client.HTTPConnection(
                place.address if port == REGISTRY_PORT else "127.0.0.1", port, timeout=5
            )
            try:
                connection.request("GET", "/")
                connection.getresponse().read()
            except OSError:
                time.sleep(0.1)
            else:
                return
            finally:
                connection.close()
        raise RuntimeError(f"{place.name} does not answer")

    with ThreadPoolExecutor(1) as alone:
        alone.submit(ask).result()


def _round(count: int, folder: Path, binary: Path, *, peers: bool) -> tuple[list[float], int]:
    """How long each node has pulled, and what the registry has sent."""
    blobs = folder / "registry/v2/team/app/blobs"
    shutil.rmtree(folder / "registry", ignore_errors=True)
    blobs.mkdir(parents=True)
    contents = [os.urandom(LAYER_BYTES) for _ in range(LAYERS)]
    layers = [f"sha256:{hashlib.sha256(one).hexdigest()}" for one in contents]
    for digest, content in zip(layers, contents, strict=True):
        (blobs / digest).write_bytes(content)
    tls = Authority().write(folder / f"tls-{peers}", NAME)
    (folder / "token").write_text(TOKEN)
    with ExitStack() as stack:
        registry, places = stack.enter_context(lines(count))
        serve = ("http.server", "--bind", REGISTRY, "--directory", str(folder / "registry"), str(REGISTRY_PORT))
        stack.enter_context(_process(registry, folder / "registry.log", sys.executable, "-m", *serve))
        nodes = [Node(place, folder / f"{peers}-{place.name}", blobs) for place in places]
        for one in nodes if peers else ():
            stack.enter_context(_program(one, nodes, binary, tls, folder))
        _answers(registry, REGISTRY_PORT)
        for one in nodes if peers else ():
            _answers(one.place, LOCAL_PORT)
        before, begin = registry.received_bytes(), threading.Barrier(count)
        with ThreadPoolExecutor(count) as turns:
            pulls = [turns.submit(one.pull, layers, peers=peers, begin=begin) for one in nodes]
            took = [one.result() for one in pulls]
        return took, registry.received_bytes() - before


@contextmanager
def _program(node: Node, nodes: Sequence[Node], binary: Path, tls: Path, folder: Path) -> Iterator[None]:
    settings = {
        "SELF": f"{node.place.address}:{PEER_PORT}",
        "MEMBERS": ",".join(f"{one.place.address}:{PEER_PORT}" for one in nodes),
        "LOCAL": f"127.0.0.1:{LOCAL_PORT}",
        "TOKEN_FILE": str(folder / "token"),
        "TLS": str(tls),
        "NAME": NAME,
        "CONTENT": str(node.folder / "content"),
    }
    told = {f"ROLLBOX_PEERS_{name}": value for name, value in settings.items()}
    with _process(node.place, folder / "peers.log", str(binary), "peers", **told):
        yield


def measure(count: int) -> list[Record]:
    """The records of this scenario."""
    with tempfile.TemporaryDirectory(prefix="bench-peers-") as name:
        folder = Path(name)
        binary = build(folder)
        took, sent = _round(count, folder, binary, peers=True)
        alone_s, alone_sent = _round(count, folder, binary, peers=False)
    image_mb = LAYERS * LAYER_BYTES / 1e6
    conditions = (
        f"{count} nodes at once, {LAYERS} layers of {LAYER_BYTES / 1e6:g} MB, {MBIT} Mbit/s each and at the registry "
        f"(a fortieth of 500 MB and 1 Gbit/s), two cores for all"
    )
    last = Baseline("each from the registry", max(alone_s), distribution(alone_s))
    return [
        Record("one new image on all nodes", max(took), "s", conditions, last, distribution=distribution(took)),
        Record(
            "one new image on a node, median",
            statistics.median(took),
            "s",
            conditions,
            Baseline("each from the registry", statistics.median(alone_s)),
        ),
        Record(
            "sent by the registry, in images",
            sent / 1e6 / image_mb,
            "images",
            conditions,
            Baseline("each from the registry", alone_sent / 1e6 / image_mb),
        ),
    ]


def main() -> None:
    """Measure, write the records and print them."""
    records = measure(int(sys.argv[1]) if len(sys.argv) > 1 else NODES)
    for record in save("peers", records, {"python": sys.version.split()[0]}):
        against = "" if record.baseline is None else f"against {record.baseline.value:.2f}"
        print(f"{record.figure}: {record.value:.2f} {record.unit} {against} ({record.conditions})")


if __name__ == "__main__":
    main()
