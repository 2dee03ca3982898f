"""The processes of the cluster, in the order in which they start."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from tests.cluster import network, options
from tests.cluster.kubectl import KubectlError, accepts, answers, kubectl, read
from tests.cluster.layout import (
    API_PORT,
    CONTAINERD_SOCKET,
    ETC,
    HERE,
    LOGS,
    MOUNTED_LAZILY,
    MOUNTS_METRICS,
    MOUNTS_SOCKET,
    NODE,
    SNAPSHOTTER_METRICS,
    SNAPSHOTTER_SOCKET,
    STATE,
)
from tests.cluster.processes import Program
from tests.cluster.toolchain import program


def base() -> list[Program]:
    """Those that wait for no other."""
    return [
        Program("janitor", (sys.executable, str(HERE / "janitor.py"), str(LOGS)), lambda: True),
        Program(
            "etcd",
            (program("etcd"), *options.flags(options.ETCD)),
            lambda: answers("http://127.0.0.1:2379/health"),
            hint="Another etcd on port 2379 would be in its way.",
        ),
        Program(
            "registry",
            ("docker-registry", "serve", str(ETC / "registry.yaml")),
            lambda: answers("http://127.0.0.1:5000/v2/"),
            hint="Another registry on port 5000 would be in its way.",
        ),
        _snapshotter("lazy-mounts", "mounts", MOUNTS_SOCKET),
        _snapshotter("snapshotter", "serve", SNAPSHOTTER_SOCKET),
        Program(
            "containerd",
            (program("containerd"), "--config", str(ETC / "containerd.toml")),
            lambda: accepts(CONTAINERD_SOCKET),
        ),
    ]


def _snapshotter(name: str, verb: str, socket: Path) -> Program:
    """One of the two processes that mount images lazily."""
    told = {
        "SOCKET": str(SNAPSHOTTER_SOCKET),
        "MOUNTS_SOCKET": str(MOUNTS_SOCKET),
        "ROOT": str(STATE / "snapshotter"),
        "REGISTRIES": str(ETC / "certs.d"),
        "TRUSTED": ",".join(MOUNTED_LAZILY),
        "METRICS": SNAPSHOTTER_METRICS,
        "MOUNTS_METRICS": MOUNTS_METRICS,
    }
    command = (program("snapshotter", "rollbox-snapshotter"), verb)
    extra = {f"ROLLBOX_SNAPSHOTTER_{setting}": value for setting, value in told.items()}
    return Program(name, command, lambda: accepts(socket), extra=extra)


def api() -> Program:
    """The API server; needs etcd."""
    return _kubernetes("kube-apiserver", options.apiserver(), f"https://127.0.0.1:{API_PORT}/readyz")


def controllers() -> list[Program]:
    """Those that need the API server."""
    return [
        _kubernetes("kube-controller-manager", options.controllers(), "https://127.0.0.1:10257/healthz"),
        _kubernetes("kube-scheduler", options.served("scheduler"), "https://127.0.0.1:10259/healthz"),
        _kubernetes("kube-proxy", {"config": f"{ETC}/kube-proxy.yaml"}, "http://127.0.0.1:10256/healthz"),
    ]


def kubelet() -> Program:
    """The node; Ready when its network is."""
    return Program(
        "kubelet",
        (program("kubernetes", "kubelet"), *options.flags(options.kubelet())),
        _node_ready,
        hint="A node is Ready when its network is: see also the logs of cilium-agent and containerd.",
        deadline=120,
    )


def every() -> list[Program]:
    """All, in the order of their start."""
    return [*base(), api(), *controllers(), *network.programs(), kubelet()]


def _kubernetes(name: str, flags: dict[str, str], url: str) -> Program:
    return Program(name, (program("kubernetes", name), *options.flags(flags)), lambda: answers(url))


def _node_ready() -> bool:
    """The kubelet answers, the node is Ready, and the kubelet knows the pods that run: after a restart, not at once."""
    if not answers("http://127.0.0.1:10248/healthz"):
        return False
    try:
        node = read("node", NODE)
        known = json.loads(kubectl("get", "--raw", f"/api/v1/nodes/{NODE}/proxy/pods"))["items"] or []
        running = read("pods", "-A", "--field-selector", f"spec.nodeName={NODE},status.phase=Running") or {"items": []}
        # Of a kubelet that registers in these moments there may be no node yet.
        ready = any(c["type"] == "Ready" and c["status"] == "True" for c in node["status"].get("conditions", []))
    except (KubectlError, TypeError, ValueError):
        return False
    return ready and {p["metadata"]["uid"] for p in running["items"]} <= {p["metadata"]["uid"] for p in known}
