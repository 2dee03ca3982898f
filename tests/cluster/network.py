"""The two networks a cluster can have: Cilium, with network policies, or a plain bridge, which starts pods sooner."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.cluster import layout, settings
from tests.cluster.kubectl import answers
from tests.cluster.layout import CNI_CONF, ETC, NODE, POD_CIDR, RUN
from tests.cluster.processes import Program
from tests.cluster.toolchain import folders, program

TABLE = "rollbox-cluster"
BRIDGE_LINK = "rollbox-pods"
CILIUM_CONF = ETC / "cilium"
ENVIRONMENT = {"K8S_NODE_NAME": NODE, "CILIUM_K8S_NAMESPACE": "kube-system"}
HEALTH_PORT = 9879
OPERATOR_PORT = 9234


def programs() -> list[Program]:
    """What runs on the host for the chosen network."""
    if layout.cni() == "bridge":
        return []
    common = ("--config-dir", str(CILIUM_CONF))
    operator = Program(
        "cilium-operator",
        (program("cilium", "cilium-operator"), *common),
        lambda: answers(f"http://127.0.0.1:{OPERATOR_PORT}/healthz"),
        extra=ENVIRONMENT,
    )
    agent = Program(
        "cilium-agent",
        (program("cilium", "cilium-agent"), *common),
        lambda: answers(f"http://127.0.0.1:{HEALTH_PORT}/healthz", brief="true"),
        hint="It compiles its programs with clang-19 and loads them: both steps are in its log.",
        deadline=120,
        extra=ENVIRONMENT,
    )
    return [operator, agent]


def announce() -> None:
    """Tell containerd that pods can be started.

    Cilium can do it itself, by renaming a file, but containerd waits for one to be written and would not see it.
    """
    if layout.cni() == "bridge":
        _masquerade()
    text = settings.rendered(conflist().name)
    if not conflist().exists() or conflist().read_text() != text:
        conflist().write_text(text)


def conflist() -> Path:
    """The file with which the runtime learns its network."""
    return CNI_CONF / f"{layout.cni()}.conflist"


def _masquerade() -> None:
    """With the bridge, pods reach what is outside under the node's address; in a table of its own, removed as one."""
    rule = f"ip saddr {POD_CIDR} ip daddr != {POD_CIDR} oifname {layout.device()} masquerade"
    chain = f"chain postrouting {{ type nat hook postrouting priority 100; {rule}; }}"
    text = f"table ip {TABLE} {{}}\ndelete table ip {TABLE}\ntable ip {TABLE} {{\n{chain}\n}}\n"
    subprocess.run(["nft", "-f", "-"], input=text, text=True, check=True)
    Path("/proc/sys/net/ipv4/ip_forward").write_text("1")


def write_cilium() -> None:
    """One file per option: the form in which a ConfigMap reaches Cilium."""
    CILIUM_CONF.mkdir(parents=True, exist_ok=True)
    for key, value in _options().items():
        (CILIUM_CONF / key).write_text(value)


def _options() -> dict[str, str]:
    return {
        "cluster-name": "default",
        "k8s-kubeconfig-path": str(ETC / "cilium.kubeconfig"),
        "identity-allocation-mode": "crd",
        "ipam": "kubernetes",
        "enable-ipv4": "true",
        "enable-ipv6": "false",
        "routing-mode": "native",
        "ipv4-native-routing-cidr": POD_CIDR,
        "devices": layout.device(),
        "kube-proxy-replacement": "false",
        "enable-ipv4-masquerade": "true",
        # Domain rules need the proxy inside the agent; Envoy is for HTTP rules alone.
        "enable-l7-proxy": "true",
        "enable-envoy-config": "false",
        "enable-hubble": "false",
        "enable-health-checking": "false",
        "enable-endpoint-health-checking": "false",
        # Kernels of small virtual machines often have no xt_socket.
        "enable-xt-socket-fallback": "true",
        "bpf-map-dynamic-size-ratio": "0.0025",
        # Of its own, so that one unmount at the end releases every program and map.
        "bpf-root": str(RUN / "bpf"),
        "cgroup-root": _cgroup2(),
        "lib-dir": str(folders()["cilium"] / "share"),
        # A check of a program that is not here.
        "disable-envoy-version-check": "true",
        "agent-health-port": str(HEALTH_PORT),
        # The operator ends when it cannot renew its lease, and here nobody starts it again: a restart of the API
        # server must fit in.
        "leader-election-lease-duration": "60s",
        "leader-election-renew-deadline": "50s",
        "operator-api-serve-addr": f"127.0.0.1:{OPERATOR_PORT}",
    }


def _cgroup2() -> str:
    for line in Path("/proc/mounts").read_text().splitlines():
        _, where, kind, *_ = line.split()
        if kind == "cgroup2":
            return where
    return str(RUN / "cgroup2")
