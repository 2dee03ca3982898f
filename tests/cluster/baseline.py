"""What the machine was like before the cluster: noted when it first comes up, put back when it goes down."""

from __future__ import annotations

import contextlib
import json
import stat
import subprocess
from pathlib import Path
from typing import Any

from tests.cluster import layout
from tests.cluster.layout import STATE

FILE = STATE / "baseline.json"
# Folders that programs make outside the cluster's own, by names built into them.
FOREIGN = [
    "/run/containerd", "/run/cilium", "/run/netns", "/run/nri", str(layout.KUBELET), "/var/lib/cni", "/var/lib/cilium",
    "/var/log/pods", "/var/log/containers", "/etc/containerd", "/etc/cni/net.d", "/opt/cni", "/opt/containerd",
    "/usr/libexec/kubernetes", "/tmp/cilium",
]  # fmt: skip
SYSCTL_ROOT = Path("/proc/sys")


def take() -> None:
    """Note it, once."""
    if FILE.exists():
        return
    note = {
        "sysctls": _sysctls(),
        "rules": rules(),
        "folders": [folder for folder in FOREIGN if Path(folder).exists()],
        "qdiscs": qdiscs(),
        "tables": [line.removeprefix("table ") for line in _lines("nft", "list", "tables")],
    }
    FILE.write_text(json.dumps(note))


def noted() -> dict[str, Any]:
    """The note; empty when there is none."""
    try:
        note: dict[str, Any] = json.loads(FILE.read_text())
    except FileNotFoundError:
        return {}
    return note


def _sysctls() -> dict[str, str]:
    """Those that a kubelet, kube-proxy, a CNI plugin or Cilium may set, and that can be put back.

    Cilium also sets kernel.unprivileged_bpf_disabled to 1, which a kernel that began with 0 or 2 keeps until its next
    boot.
    """
    names = ["kernel/panic", "kernel/panic_on_oops", "kernel/keys/root_maxkeys", "kernel/keys/root_maxbytes",
             "vm/overcommit_memory", "vm/panic_on_oom", "net/ipv4/ip_forward",
             "net/ipv4/fib_multipath_use_neigh", "net/core/bpf_jit_enable", "net/ipv4/ip_early_demux",
             "net/ipv6/conf/all/forwarding", "net/ipv4/vs/conntrack"]  # fmt: skip
    links = ("all", "default", layout.device())
    folders = ["net/netfilter", "net/bridge", *(f"net/{ip}/conf/{link}" for ip in ("ipv4", "ipv6") for link in links)]
    for folder in folders:
        names += [str(path.relative_to(SYSCTL_ROOT)) for path in (SYSCTL_ROOT / folder).glob("*")]
    return {name: value for name in names if (value := _sysctl(name)) is not None}


def _sysctl(name: str) -> str | None:
    try:
        return (SYSCTL_ROOT / name).read_text().strip()
    except OSError:
        return None


def changed_sysctls() -> list[str]:
    """Those that differ from the note, but for the kernel's own counters."""
    before = noted().get("sysctls", {})
    return [name for name, value in before.items() if _sysctl(name) not in {None, value} and _writable(name)]


def _writable(name: str) -> bool:
    return bool((SYSCTL_ROOT / name).stat().st_mode & stat.S_IWUSR)


def restore_sysctls() -> None:
    """Put back those that differ."""
    for name in changed_sysctls():
        with contextlib.suppress(OSError):
            (SYSCTL_ROOT / name).write_text(noted()["sysctls"][name])


def new_folders() -> list[str]:
    """Those with others' names that were not there before."""
    return sorted(set(FOREIGN) - set(noted().get("folders", FOREIGN)))


def rules() -> list[str]:
    """The policy routing rules."""
    return sorted(_lines("ip", "-4", "rule"))


def qdiscs() -> list[str]:
    """Hooks for packet filters on the node's device."""
    return [line for line in _lines("tc", "qdisc", "show", "dev", layout.device()) if "clsact" in line]


def _lines(*command: str) -> list[str]:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return [line.strip() for line in done.stdout.splitlines()]
