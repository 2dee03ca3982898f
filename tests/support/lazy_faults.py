"""What goes wrong with lazily mounted images on the test cluster's node: damaged layers, snapshotters that hang."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from tests.cluster import processes, programs
from tests.cluster.layout import CONTAINERD_SOCKET, KUBELET, LAZY_REGISTRY
from tests.cluster.toolchain import program

DAMAGED_BYTES = 64
# Larger than all that a registry has beside layers with the files of tests.
LEAST_BYTES = 4 << 20


@contextmanager
def hanging(part: str) -> Iterator[None]:
    """A part of the node that answers nothing."""
    pid = processes.running(part)
    assert pid
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def damage(pod_uid: str) -> None:
    """Changes bytes in the middle of the newest large layer in a release's registry: the converted one.

    Args:
        pod_uid: of the registry's pod. Other releases have registries on this node too.
    """
    folder = f"pods/{pod_uid}/volumes/kubernetes.io~empty-dir/data/docker/registry/v2/blobs/sha256/*/*/data"
    blobs = [one for one in KUBELET.glob(folder) if one.stat().st_size > LEAST_BYTES]
    newest = max(blobs, key=lambda one: one.stat().st_mtime)
    middle = newest.stat().st_size // 2
    with newest.open("r+b") as blob:
        blob.seek(middle)
        right = blob.read(DAMAGED_BYTES)
        blob.seek(middle)
        blob.write(bytes(byte ^ 0xFF for byte in right))


def forget() -> None:
    """Takes the release's converted images from the node, and all that was fetched of them."""
    rows = [line.split() for line in _ctr("images", "list")[1:]]
    digests = {row[2] for row in rows if row[0].startswith(f"{LAZY_REGISTRY}/estargz/")}
    names = [row[0] for row in rows if row[2] in digests]
    assert names
    _ctr("images", "remove", "--sync", *names)
    (mounts,) = (one for one in programs.base() if one.name == "lazy-mounts")
    processes.stop(mounts.name, signal.SIGTERM)
    processes.start(mounts)
    processes.wait_ready(mounts)


def containers(sandbox_id: str) -> Sequence[str]:
    """The containers that containerd has of a sandbox's pods, its pod sandboxes among them."""
    return _ctr("containers", "list", "--quiet", f'labels."io.kubernetes.pod.name"=={sandbox_id}')


def _ctr(*words: str) -> Sequence[str]:
    command = (program("containerd", "ctr"), "--address", str(CONTAINERD_SOCKET), "--namespace", "k8s.io", *words)
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
