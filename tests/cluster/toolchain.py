"""The cluster's programs: built by toolchain/build.sh, found by component and by name."""

from __future__ import annotations

import os
import subprocess
from functools import cache
from pathlib import Path

from tests.cluster.layout import HERE, cni

COMPONENTS = ["kubernetes", "etcd", "containerd", "gvisor", "pause", "coredns", "helm", "snapshotter"]
# Debian puts the CNI plugins here, and system programs where an ordinary user's PATH may not reach.
CNI_BIN = Path("/usr/lib/cni")
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@cache
def folders() -> dict[str, Path]:
    """Component -> its folder; builds what is missing first (about 20 minutes on a fresh machine of two cores)."""
    return built(*COMPONENTS, *(["cilium"] if cni() == "cilium" else []))


@cache
def built(*components: str) -> dict[str, Path]:
    """Named components alone, each with its folder; builds what is missing first."""
    command = [str(HERE / "toolchain/build.sh"), *components]
    printed = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    found = dict(line.split(maxsplit=1) for line in printed.splitlines())
    return {name: Path(folder) for name, folder in found.items()}


def program(component: str, name: str = "") -> str:
    """Full path of one program of a component, which is built if it is missing."""
    return str(built(component)[component] / "bin" / (name or component))


def search_path() -> str:
    """The folders of the components, in the form of a PATH."""
    return ":".join(str(folder / "bin") for folder in folders().values())


def clients() -> str:
    """The same for people: what they may want by name, without what would hide a program of theirs."""
    return ":".join(str(folders()[name] / "bin") for name in ("kubernetes", "containerd", "helm"))


def environment(**extra: str) -> dict[str, str]:
    """The environment of the cluster's programs: the caller's own settings do not leak into a shared machine."""
    return {"PATH": f"{search_path()}:{SYSTEM_PATH}", "HOME": os.environ.get("HOME", "/root"), **extra}
