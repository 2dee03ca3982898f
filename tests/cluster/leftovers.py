"""What a cluster makes on a machine, and how it is found again."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

from tests.cluster import baseline
from tests.cluster.layout import CACHE, RUN, STATE
from tests.cluster.network import BRIDGE_LINK, TABLE

CGROUPS = Path("/sys/fs/cgroup")
CGROUP_NAMES = ("kubepods", "k8s.io", "cilium")
LINKS = (BRIDGE_LINK, "cilium_", "lxc")
NFT_TABLES = ("kube-proxy", TABLE)
# Programs with which somebody may be talking to the cluster now.
CLIENTS = {"kubectl", "helm", "ctr"}
# What iptables makes of its tables when the kernel has nftables.
IPTABLES = ("filter", "nat", "mangle", "raw", "security")
CHAINS = ("CILIUM_", "KUBE-")


def found() -> list[str]:
    """Everything of the cluster that is there, in words."""
    kinds = {
        "process": [f"{pid} {_cmdline(pid)[:100]}" for pid in processes()],
        "mount": mounts(),
        "link": links(),
        "nftables table": [" ".join(table) for table in nft_tables()],
        "iptables chain": [f"{program} {table} {chain}" for program, table, chain in chains()],
        "ipset": ipsets(),
        "routing rule": [rule for rule in baseline.rules() if rule not in baseline.noted().get("rules", [rule])],
        "packet filter hook": [q for q in baseline.qdiscs() if q not in baseline.noted().get("qdiscs", [q])],
        "cgroup": [str(path) for path in cgroups()],
        "bpf program": bpf_programs(),
        "sysctl": baseline.changed_sysctls(),
        "folder": [folder for folder in (str(RUN), *baseline.new_folders()) if Path(folder).exists()],
    }
    return [f"{kind} {name}" for kind, names in kinds.items() for name in names]


def processes() -> list[int]:
    """Those in the pods' cgroups, and those of the cluster's own programs; not a client that somebody runs."""
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit() and _ours(entry)]


def _ours(process: Path) -> bool:
    """A sandbox that somebody runs by hand with the same programs is not ours: its paths are others."""
    try:
        groups = (process / "cgroup").read_text()
        words = (process / "cmdline").read_bytes().decode(errors="replace").split("\0")
        program = (process / "exe").readlink()
    except OSError:
        return False  # it has ended, or is a thread of the kernel
    if any(f":/{name}/" in groups for name in CGROUP_NAMES):
        return True
    served = any(f"{folder}/" in word for word in words for folder in (RUN, STATE))
    built = program.is_relative_to(CACHE) and Path(words[0]).name not in CLIENTS
    # The snapshotter's settings are in its environment alone.
    return (served and (built or program.name == "docker-registry")) or (
        built and program.name == "rollbox-snapshotter"
    )


def _cmdline(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        return ""


def mounts() -> list[str]:
    """Mount points in the cluster's folders, and in or at those with others' names that were not there before."""
    points = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
    folders = (RUN, STATE, *baseline.new_folders())
    return [point for point in points if any(f"{point}/".startswith(f"{folder}/") for folder in folders)]


def links() -> list[str]:
    """Network devices with the cluster's names."""
    return [link.name for link in Path("/sys/class/net").iterdir() if link.name.startswith(LINKS)]


def nft_tables() -> list[tuple[str, str]]:
    """Family and name."""
    listed = json.loads(output("nft", "-j", "list", "tables") or '{"nftables": []}')["nftables"]
    tables = [entry["table"] for entry in listed if "table" in entry]
    return [(table["family"], table["name"]) for table in tables if table["name"] in NFT_TABLES or _emptied(table)]


def _emptied(table: dict[str, str]) -> bool:
    """A table that iptables made for the cluster, and in which nothing is left."""
    key = f"{table['family']} {table['name']}"
    if table["name"] not in IPTABLES or key in baseline.noted().get("tables", [key]):
        return False
    return " jump " not in (text := output("nft", "list", "table", *key.split())) and " counter " not in text


def chains() -> list[tuple[str, str, str]]:
    """Program, table and chain of what was made through iptables."""
    every = []
    for program in ("iptables", "ip6tables"):
        table = ""
        for line in output(f"{program}-save").splitlines():
            if line.startswith("*"):
                table = line[1:]
            elif line.startswith(":") and line[1:].startswith(CHAINS):
                every.append((program, table, line[1:].split()[0]))
    return every


def ipsets() -> list[str]:
    """Names of Cilium's address sets."""
    return [name for name in output("ipset", "list", "-name").splitlines() if name.startswith("cilium_")]


def cgroups() -> list[Path]:
    """The cluster's cgroups in every hierarchy, the deepest first."""
    tops = [path for name in CGROUP_NAMES for path in (*CGROUPS.glob(name), *CGROUPS.glob(f"*/{name}"))]
    return [Path(folder) for top in tops for folder, _, _ in os.walk(top, topdown=False)]


def bpf_programs() -> list[str]:
    """Names of those that Cilium loaded."""
    listed = json.loads(output("bpftool", "-j", "prog", "list") or "[]")
    return [entry["name"] for entry in listed if str(entry.get("name", "")).startswith(("cil_", "tail_"))]


def output(*command: str) -> str:
    """What a command prints; nothing when it fails, for what is to be removed may be gone."""
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout
