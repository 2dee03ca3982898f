"""Where the cluster keeps its things, and its addresses: one cluster per machine, shared by all checkouts."""

from __future__ import annotations

import json
import os
import subprocess
from functools import cache
from pathlib import Path


def _base(variable: str, default: str) -> Path:
    return Path(os.environ.get(variable) or Path.home() / default) / "rollbox/cluster"


HERE = Path(__file__).parent
STATE = _base("XDG_STATE_HOME", ".local/state")
CACHE = _base("XDG_CACHE_HOME", ".cache")
# Sockets and mounts: their paths must be short, and nothing in here means anything after a reboot.
RUN = Path("/run/rollbox-cluster")
LOGS = STATE / "logs"
PKI = STATE / "pki"
ETC = STATE / "etc"
CNI_CONF = ETC / "cni"
KUBECONFIG = STATE / "kubeconfig"
# Its own folder, as on most nodes: gVisor's shim looks for a volume that it is to keep in no other one.
KUBELET = Path("/var/lib/kubelet")
# Holds the name of the network with which the cluster was made.
CHOSEN = STATE / "cni"
# While it is there, containerd is told of neither gVisor nor lazy pulling.
BARE = STATE / "bare"
CONTAINERD_SOCKET = RUN / "containerd/containerd.sock"
# Of the two processes that mount images lazily; images of this beginning, and no others, are.
SNAPSHOTTER_SOCKET = RUN / "snapshotter/snapshotter.sock"
# Where its two processes tell their metrics.
SNAPSHOTTER_METRICS, MOUNTS_METRICS = "127.0.0.1:9810", "127.0.0.1:9811"
MOUNTS_SOCKET = RUN / "snapshotter/mounts.sock"

NODE = "rollbox-node-0"
POD_CIDR = "10.98.0.0/20"
SERVICE_CIDR = "10.97.0.0/16"
API_SERVICE = "10.97.0.1"
DNS_SERVICE = "10.97.0.10"
API_PORT = 6443
REGISTRY = "localhost:5000"
# The same registry, as nodes reach it while a benchmark makes its line slow.
SLOW_REGISTRY = "localhost:5001"
LAZY_IMAGES = tuple(f"{registry}/estargz/" for registry in (REGISTRY, SLOW_REGISTRY))
# The private registry of one release of the tests, whose mirror converts: nodes have to know its name beforehand.
LAZY_RELEASE, LAZY_PORT = "rollbox-lazy", 5643
LAZY_REGISTRY = f"{LAZY_RELEASE}-registry.{LAZY_RELEASE}.svc.cluster.local:{LAZY_PORT}"
MOUNTED_LAZILY = (*LAZY_IMAGES, f"{LAZY_REGISTRY}/estargz/")
PAUSE_IMAGE = f"{REGISTRY}/rollbox-cluster/pause:1"
COREDNS_IMAGE = f"{REGISTRY}/rollbox-cluster/coredns:1"


def cni() -> str:
    """Which network the cluster has, or is to have when there is none: `cilium` or `bridge`."""
    present = CHOSEN.read_text() if CHOSEN.exists() else "cilium"
    chosen = os.environ.get("ROLLBOX_TEST_CNI") or present
    if chosen not in {"cilium", "bridge"}:
        raise SystemExit(f"ROLLBOX_TEST_CNI is {chosen!r}; it can be cilium or bridge.")
    return chosen


@cache
def device() -> str:
    """The network device of this machine's default route."""
    routes = json.loads(_ip("route", "show", "default") or "[]")
    if not routes:
        raise SystemExit("This machine has no default route, so the node would have no address: give it one first.")
    return str(routes[0]["dev"])


@cache
def node_ip() -> str:
    """The address of the node: this machine's own, which pods can reach too."""
    addresses = json.loads(_ip("address", "show", "dev", device(), "scope", "global"))[0]["addr_info"]
    return str(addresses[0]["local"])


def _ip(*arguments: str) -> str:
    return subprocess.run(["ip", "-j", "-4", *arguments], check=True, capture_output=True, text=True).stdout
