"""Images that are odd and yet have to run, on an engine or from the registry of the test cluster."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import io
import json
import os
import tarfile
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

from controlplane.embedded.binaries import required
from tests.cluster import images as registry
from tests.support.containers import engine
from tests.support.images import REGISTRY
from tests.support.waiting import until

PROGRAM = "/app"
ON_CLUSTER = os.environ.get("ROLLBOX_TEST_PRODUCT") == "cluster"


@dataclass(frozen=True)
class OddImage:
    """Layers from the lowest, each an archive or anything else, and settings."""

    layers: Sequence[bytes]
    config: Mapping[str, Any] = field(default_factory=dict)

    def settings(self) -> bytes:
        """The image's configuration."""
        rootfs = {"type": "layers", "diff_ids": [registry.digest(layer) for layer in self.layers]}
        return json.dumps({"architecture": "amd64", "os": "linux", "config": self.config, "rootfs": rootfs}).encode()


def archive(files: Mapping[str, bytes]) -> bytes:
    """A layer of these files."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for path, content in files.items():
            entry = tarfile.TarInfo(path)
            entry.size, entry.mode = len(content), 0o755
            tar.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()


def folders(modes: Mapping[str, int]) -> bytes:
    """A layer of folders with these modes."""
    return _layer(*(_entry(path, tarfile.DIRTYPE, mode) for path, mode in modes.items()))


def linked(path: str, target: str) -> bytes:
    """A layer of one symbolic link."""
    entry = _entry(path, tarfile.SYMTYPE, 0o777)
    entry.linkname = target
    return _layer(entry)


def _entry(path: str, kind: bytes, mode: int) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(path)
    entry.type, entry.mode = kind, mode
    return entry


def _layer(*entries: tarfile.TarInfo) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for entry in entries:
            tar.addfile(entry)
    return buffer.getvalue()


def program() -> bytes:
    """A layer of one static program, which ends with 0 when it is asked to probe: no shell, no users, no folders."""
    return archive({PROGRAM.removeprefix("/"): required("target").resolve().read_bytes()})


@contextlib.asynccontextmanager
async def provided(image: OddImage, folder: Path) -> AsyncIterator[str]:
    """The name by which the product gets it, while the block runs."""
    name = f"odd-{uuid4().hex[:8]}"
    if ON_CLUSTER:
        layers = [_packed(layer) for layer in image.layers]
        repository = f"{REGISTRY}/odd/{name}"
        await asyncio.to_thread(registry.push_image, repository.partition("/")[2], "1", image.settings(), layers)
        yield f"{repository}:1"
        return
    local = f"localhost/rollbox/{name}:1"
    await engine("load", "--input", str(_saved(image, local, folder)))
    try:
        yield local
    finally:
        await until(lambda: _removed(local))


def _packed(layer: bytes) -> bytes:
    # One of zero bytes stays one: packed it would have twenty.
    return gzip.compress(layer, compresslevel=1, mtime=0) if layer else layer


def _saved(image: OddImage, name: str, folder: Path) -> Path:
    """As `docker save` writes it."""
    layers = [f"{number}.tar" for number in range(len(image.layers))]
    manifest = json.dumps([{"Config": "config.json", "RepoTags": [name], "Layers": layers}]).encode()
    path = folder / "image.tar"
    files = {"manifest.json": manifest, "config.json": image.settings(), **dict(zip(layers, image.layers, strict=True))}
    path.write_bytes(archive(files))
    return path


async def _removed(name: str) -> bool:
    with contextlib.suppress(RuntimeError):
        await engine("rmi", name)
        return True
    return False
