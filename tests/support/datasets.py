"""A data set for tests, where the product runs: its files, and what looks at them from outside."""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import shutil
import subprocess
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

from tests.support.commits import ON_CLUSTER
from tests.support.installed import Installed, apply, kubectl
from tests.support.release import DATASETS, SCRATCH_CLASS
from tests.support.stack import Product, start, stop_process

# Its name, that of one that is another owner's, and on a cluster that of the same as a folder of the node.
MINI, THEIRS, FOLDER = "mini", "theirs", "mini-by-folder"
# One of its own that a test may remove.
FLEETING = "fleeting"
# A file of it, in the folder `train`.
CONTENT = b"one picture\n"


@dataclass
class Files:
    """The folders of the data sets on this machine, and the name of the claim of the first on a cluster."""

    folder: Path
    fleeting: Path
    claim: str = field(default_factory=lambda: f"test-{uuid4().hex[:8]}")

    def digest(self) -> str:
        """Of all names, modes and contents."""
        told = hashlib.sha256()
        for path in sorted(self.folder.rglob("*")):
            seen = path.lstat()
            content = path.read_bytes() if path.is_file() and not path.is_symlink() else b""
            told.update(f"{path} {seen.st_mode} {seen.st_uid} {seen.st_nlink} {seen.st_mtime_ns}\n".encode() + content)
        return told.hexdigest()


@contextmanager
def written() -> Iterator[Files]:
    """A data set with a file, a program, and links that lead out of it; and one of one file."""
    folder, fleeting = made_folder("ds-"), made_folder("fleeting-")
    (fleeting / "one").write_bytes(CONTENT)
    try:
        (folder / "train").mkdir()
        (folder / "train" / "one").write_bytes(CONTENT)
        (folder / "script").write_text("#!/bin/sh\necho ran\n")
        (folder / "script").chmod(0o755)
        (folder / "outward").symlink_to("/etc/hostname")
        (folder / "upward").symlink_to("../../../../../../../../../etc/hostname")
        yield Files(folder, fleeting)
    finally:
        for one in (folder, fleeting):
            shutil.rmtree(one)


def made_folder(prefix: str) -> Path:
    """A folder where data sets may be, which only its owner may write."""
    DATASETS.mkdir(mode=0o755, parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix=prefix, dir=DATASETS))
    folder.chmod(0o755)
    return folder


def on_engine(files: Files) -> Iterator[Product]:
    """`rollbox up` that knows the first by two names, one for everybody and one for somebody else, and the second."""
    folder = Path(tempfile.mkdtemp(prefix="rb-", dir="/tmp"))
    given = (
        f"{MINI}={files.folder}",
        f"{THEIRS}={files.folder},owners=somebody-else",
        f"{FLEETING}={files.fleeting}",
    )
    with asyncio.Runner() as runner:
        up = runner.run(start(folder, *(part for one in given for part in ("--dataset", one))))
        yield up
        assert runner.run(stop_process(up.process)) == 0, (folder / "up.log").read_text()[-2000:]
    shutil.rmtree(folder)


@asynccontextmanager
async def declared_on_cluster(stack: Installed, files: Files) -> AsyncIterator[None]:
    """The same as a claim that many pods may read, declared as objects of the cluster, and as a folder of the node."""
    datasets = (
        _dataset(MINI, claim=files.claim),
        _dataset(THEIRS, claim=files.claim, owners=["somebody-else"]),
        _dataset(FOLDER, folder=str(files.folder)),
        _dataset(FLEETING, folder=str(files.fleeting)),
    )
    await apply(*claim(files.claim, files.folder), *datasets, namespace=stack.sandboxes)
    try:
        yield
    finally:
        await _removed(stack, files.claim)


def on_cluster(stack: Installed, files: Files) -> Iterator[None]:
    """As ``declared_on_cluster``, for fixtures."""
    with asyncio.Runner() as runner:
        declaring = declared_on_cluster(stack, files)
        runner.run(declaring.__aenter__())
        yield
        runner.run(declaring.__aexit__(None, None, None))


def claim(name: str, folder: Path, mode: str = "ReadOnlyMany") -> tuple[dict[str, Any], dict[str, Any]]:
    """A volume that is a folder of the node, and a claim of it."""
    spec = {"accessModes": [mode], "storageClassName": "", "volumeName": name}
    volume = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name},
        "spec": {
            "capacity": {"storage": "1Gi"},
            "accessModes": [mode],
            "persistentVolumeReclaimPolicy": "Retain",
            "hostPath": {"path": str(folder), "type": "Directory"},
        },
    }
    asked = {**spec, "resources": {"requests": {"storage": "1Gi"}}}
    return volume, {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name}, "spec": asked}


@asynccontextmanager
async def scratch_volumes(count: int, *, size: str = "") -> AsyncIterator[list[Path]]:
    """Volumes of a cluster's class of scratch, which are folders of this machine; these folders. None on an engine.

    One test at a time has some: a claim takes any of them.

    Args:
        count: how many.
        size: the most that each holds, as `mount` reads it; empty: what the machine's disk has.
    """
    if not ON_CLUSTER:
        yield []
        return
    DATASETS.mkdir(mode=0o755, parents=True, exist_ok=True)
    with (DATASETS / "scratch.lock").open("w") as lock:
        await asyncio.to_thread(fcntl.flock, lock, fcntl.LOCK_EX)
        async with AsyncExitStack() as stack:
            # Only its owner may write there, as storage often leaves it.
            folders = [made_folder("scratch-") for _ in range(count)]
            for folder in folders:
                stack.callback(shutil.rmtree, folder)
                if size:
                    stack.enter_context(_of_size(folder, size))
            if folders:
                await stack.enter_async_context(_volumes(folders))
            yield folders


@contextmanager
def _of_size(folder: Path, size: str) -> Iterator[None]:
    """A file system of its own there."""
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size},mode=0755", "scratch", folder], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", folder], check=True)


@asynccontextmanager
async def _volumes(folders: list[Path]) -> AsyncIterator[None]:
    names = [f"test-scratch-{uuid4().hex}" for _ in folders]
    made = []
    for name, folder in zip(names, folders, strict=True):
        volume, _ = claim(name, folder, "ReadWriteMany")
        volume["spec"]["storageClassName"] = SCRATCH_CLASS
        made.append(volume)
    try:
        await apply(*made)
        yield
    finally:
        await kubectl("delete", "pv", *names, "--ignore-not-found", "--timeout=60s")


def _dataset(name: str, **spec: Any) -> dict[str, Any]:
    return {"apiVersion": "rollbox.dev/v1alpha1", "kind": "Dataset", "metadata": {"name": name}, "spec": spec}


async def _removed(stack: Installed, claimed: str) -> None:
    names = (MINI, THEIRS, FOLDER, FLEETING)
    await kubectl("delete", "dataset.rollbox.dev", *names, "-n", stack.sandboxes, "--ignore-not-found")
    # What waits for the last pod that has it goes by itself.
    await kubectl("delete", "pvc", claimed, "-n", stack.sandboxes, "--ignore-not-found", "--wait=false")
    await kubectl("delete", "pv", claimed, "--ignore-not-found", "--wait=false")
