"""Writes the configuration files of the cluster's programs from the templates in files/."""

from __future__ import annotations

import platform
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from string import Template

from tests.cluster import layout
from tests.cluster.layout import CNI_CONF, ETC, HERE
from tests.cluster.toolchain import CNI_BIN, folders, program


def write() -> None:
    """Write every file that a program reads when it starts."""
    for name in ("containerd.toml", "runsc.toml", "registry.yaml", "kubelet.yaml", "kube-proxy.yaml", "coredns.yaml"):
        _put(ETC / name, rendered(name))
    gvisor = ETC / "containerd.d/gvisor.toml"
    gvisor.parent.mkdir(parents=True, exist_ok=True)
    if layout.BARE.exists():
        gvisor.unlink(missing_ok=True)
    else:
        _put(gvisor, rendered("gvisor.toml"))
    _put(ETC / "certs.d" / layout.REGISTRY / "hosts.toml", rendered("hosts.toml"))
    # The folder must be there before containerd watches it.
    CNI_CONF.mkdir(parents=True, exist_ok=True)


@contextmanager
def trusted(host: str, hosts: str, authority: str, account: str = "") -> Iterator[None]:
    """The node pulls from another registry while the block runs; containerd reads this at every pull.

    Args:
        host: as names of images begin with it.
        hosts: the text of its hosts.toml.
        authority: the certificate of the authority that has signed its own.
        account: what the snapshotter shows it, as USER:PASSWORD; empty: nothing.
    """
    folder = ETC / "certs.d" / host
    _put(folder / "hosts.toml", hosts)
    _put(folder / "ca.crt", authority)
    if account:
        _put(folder / "credentials", account)
    try:
        yield
    finally:
        shutil.rmtree(folder)


def rendered(name: str) -> str:
    """A template of files/ with this cluster's paths and addresses in it."""
    values = {
        "state": layout.STATE,
        "cache": layout.CACHE,
        "run": layout.RUN,
        "etc": ETC,
        "pki": layout.PKI,
        "socket": layout.CONTAINERD_SOCKET,
        "snapshotter_socket": layout.SNAPSHOTTER_SOCKET,
        "arch": "arm64" if platform.machine() == "aarch64" else "amd64",
        "node": layout.NODE,
        "dns": layout.DNS_SERVICE,
        "pod_cidr": layout.POD_CIDR,
        "pause_image": layout.PAUSE_IMAGE,
        "coredns_image": layout.COREDNS_IMAGE,
        "runsc": program("gvisor", "runsc"),
        "cni_conf": CNI_CONF,
        "cni_bins": ", ".join(f'"{folder}"' for folder in _plugin_folders()),
    }
    return Template((HERE / "files" / name).read_text()).substitute(values)


def _put(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    # kube-proxy ends when its file is written again, even with the same text.
    if not path.exists() or path.read_text() != text:
        path.write_text(text)


def _plugin_folders() -> list[Path]:
    cilium = folders().get("cilium")
    return [CNI_BIN, cilium / "bin"] if cilium else [CNI_BIN]
