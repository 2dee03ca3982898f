"""What a node carries beside the sandboxes' own work: processes, memory, control groups, watches, connections."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

PROC = Path("/proc")
# By what their command lines begin with: gVisor's processes have the name `exe`, and say in argv[0] what they are.
KINDS = {
    "shim": re.compile(r"\S*containerd-shim-runsc-v1"),
    "sentry": re.compile(r"runsc-sandbox"),
    "gofer": re.compile(r"runsc-gofer"),
    "kubelet": re.compile(r"\S*/kubelet\b"),
    "containerd": re.compile(r"\S*/containerd\b"),
    "cilium": re.compile(r"\S*cilium-agent"),
    "API server": re.compile(r"\S*kube-apiserver"),
    "etcd": re.compile(r"\S*/etcd\b"),
}


def kind_of(command: str) -> str:
    """Which part of a node a process is; `other`: none of these."""
    return next((kind for kind, begins in KINDS.items() if begins.match(command)), "other")


def processes() -> Mapping[str, Mapping[str, float]]:
    """By part: how many processes and threads, and their memory in MiB, what they share divided among them."""
    found: dict[str, dict[str, float]] = {}
    for entry in PROC.iterdir():
        # One may end between the listing and the look.
        with suppress(OSError, IndexError, ValueError):
            if not entry.name.isdigit() or not (command := (entry / "cmdline").read_bytes().split(b"\0")[0].decode()):
                continue
            one = found.setdefault(kind_of(command), {"processes": 0, "threads": 0, "pss_mib": 0.0, "files": 0})
            memory = re.search(r"^Pss:\s+(\d+) kB", (entry / "smaps_rollup").read_text(), re.MULTILINE)
            one["pss_mib"] += int(memory[1]) / 1024 if memory else 0.0
            one["threads"] += len([*(entry / "task").iterdir()])
            one["files"] += len([*(entry / "fd").iterdir()])
            one["processes"] += 1
    return found


def kernel() -> Mapping[str, float]:
    """What the kernel counts, each beside its limit where it has one."""
    watches = instances = 0
    for entry in PROC.iterdir():
        with suppress(OSError):
            for fd in (entry / "fdinfo").iterdir() if entry.name.isdigit() else ():
                text = fd.read_text()
                instances += "inotify wd:" in text
                watches += text.count("inotify wd:")
    groups = sum(int(line.split()[2]) for line in (PROC / "cgroups").read_text().splitlines()[1:])
    return {
        "inotify_instances_with_watches": instances,
        "inotify_instances_limit_per_user": _number("sys/fs/inotify/max_user_instances"),
        "inotify_watches": watches,
        "inotify_watches_limit_per_user": _number("sys/fs/inotify/max_user_watches"),
        "control_groups_of_all_controllers": groups,
        "connections_tracked": _number("sys/net/netfilter/nf_conntrack_count"),
        "connections_tracked_limit": _number("sys/net/netfilter/nf_conntrack_max"),
        "mounts": len((PROC / "self/mountinfo").read_text().splitlines()),
        "threads": float((PROC / "loadavg").read_text().split()[3].split("/")[1]),
        "threads_limit": _number("sys/kernel/threads-max"),
        "pid_limit": _number("sys/kernel/pid_max"),
        "open_files": float((PROC / "sys/fs/file-nr").read_text().split()[0]),
        "map_count_limit": _number("sys/vm/max_map_count"),
    }


def forks() -> int:
    """Processes that this machine has made since it runs."""
    (line,) = [one for one in (PROC / "stat").read_text().splitlines() if one.startswith("processes ")]
    return int(line.split()[1])


def busy_s() -> float:
    """Processor seconds that this machine has not been idle, of all cores."""
    user, nice, system, _, _, irq, soft, *_ = map(int, (PROC / "stat").read_text().split("\n")[0].split()[1:])
    return (user + nice + system + irq + soft) / os.sysconf("SC_CLK_TCK")


def used_mib() -> float:
    """Memory of the machine that is in use: what the kernel does not call available."""
    found = dict(re.findall(r"^(MemTotal|MemAvailable):\s+(\d+) kB", (PROC / "meminfo").read_text(), re.MULTILINE))
    return (int(found["MemTotal"]) - int(found["MemAvailable"])) / 1024


def _number(path: str) -> float:
    with suppress(OSError, ValueError):
        return float((PROC / path).read_text())
    return 0.0
