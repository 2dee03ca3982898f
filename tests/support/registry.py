"""A real image registry of one's own (Debian's docker-registry), and images of a few bytes that are pushed to it."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import shutil
import socket
import subprocess
import tarfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp

from tests.support.stack import free_port

UP_WITHIN_S = 30.0
INDEX = "application/vnd.oci.image.index.v1+json"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
CONFIG = "application/vnd.oci.image.config.v1+json"
LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"
# docker-registry reads htpasswd files with bcrypt only; this is user:password.
HTPASSWD = "user:$2b$04$GyurtZRhQZXvpyym8iPIaeD/Fq9gCcHYoBau.ClXkS33lI57G3i0i\n"


def digest(content: bytes) -> str:
    """Its sha256, as registries write it."""
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


@contextmanager
def registry_server(folder: Path, address: str = "", **http: Any) -> Iterator[str]:
    """Host and port of an empty registry that answers by http while the block runs.

    Args:
        folder: for its files.
        address: host and port; empty: any port of loopback.
        http: more of its configuration.

    Raises:
        RuntimeError: there is none to start, or it did not start.
    """
    if shutil.which("docker-registry") is None:
        raise RuntimeError("docker-registry is not on PATH: `make setup` installs what the tests need")
    address = address or f"127.0.0.1:{free_port('127.0.0.1')}"
    config = {
        "version": 0.1,
        "log": {"level": "error", "accesslog": {"disabled": True}},
        "storage": {"filesystem": {"rootdirectory": str(folder / "storage")}, "delete": {"enabled": True}},
        "http": {"addr": address},
        **http,
    }
    path = folder / "registry.json"
    path.write_text(json.dumps(config))  # JSON is YAML
    with subprocess.Popen(["docker-registry", "serve", str(path)], stderr=subprocess.DEVNULL) as server:
        try:
            until_s = time.monotonic() + UP_WITHIN_S
            while not _answers(address):
                if server.poll() is not None or time.monotonic() > until_s:
                    raise RuntimeError("docker-registry did not start")
                time.sleep(0.02)
            yield address
        finally:
            server.kill()


def _answers(address: str) -> bool:
    host, _, port = address.rpartition(":")
    with socket.socket() as probe:
        return probe.connect_ex((host, int(port))) == 0


@dataclass(frozen=True)
class Pusher:
    """Pushes images to one registry."""

    http: aiohttp.ClientSession
    address: str
    headers: Mapping[str, str]

    async def image(self, name: str, tag: str, *, architecture: str = "amd64", mark: str = "") -> str:
        """Pushes an image of one layer; its digest. Another `mark` makes it another image."""
        layer = b"layer" + mark.encode()
        config = json.dumps(
            {"architecture": architecture, "os": "linux", "rootfs": {"type": "layers"}, "config": {"Cmd": [mark]}}
        ).encode()
        return await self.manifest(name, tag, MANIFEST, {"config": (CONFIG, config), "layers": [(LAYER, layer)]})

    async def archive(self, name: str, tag: str, files: Mapping[str, bytes]) -> str:
        """Pushes an image whose one layer has these files; its digest."""
        archive = io.BytesIO()
        with tarfile.open(fileobj=archive, mode="w") as tar:
            for path, content in files.items():
                entry = tarfile.TarInfo(path)
                entry.size = len(content)
                tar.addfile(entry, io.BytesIO(content))
        layer = archive.getvalue()
        rootfs = {"type": "layers", "diff_ids": [digest(layer)]}
        config = json.dumps({"architecture": "amd64", "os": "linux", "rootfs": rootfs}).encode()
        return await self.manifest(
            name, tag, MANIFEST, {"config": (CONFIG, config), "layers": [(LAYER, gzip.compress(layer))]}
        )

    async def index(self, name: str, tag: str, entries: Mapping[str, str]) -> str:
        """Pushes an index: architecture -> digest of a manifest that is there; its digest."""
        listed = [
            {"mediaType": MANIFEST, "digest": at, "size": 1, "platform": {"os": "linux", "architecture": architecture}}
            for architecture, at in entries.items()
        ]
        return await self._put(name, tag, INDEX, {"schemaVersion": 2, "mediaType": INDEX, "manifests": listed})

    async def manifest(
        self, name: str, tag: str, kind: str, parts: Mapping[str, tuple[str, bytes] | Sequence[tuple[str, bytes]]]
    ) -> str:
        """Pushes a manifest and what it names; its digest."""
        named: dict[str, Any] = {}
        for part, content in parts.items():
            if isinstance(content, tuple):
                named[part] = await self._blob(name, *content)
            else:
                named[part] = [await self._blob(name, *one) for one in content]
        return await self._put(name, tag, kind, {"schemaVersion": 2, "mediaType": kind, **named})

    async def _put(self, name: str, tag: str, kind: str, manifest: Mapping[str, Any]) -> str:
        body = json.dumps(manifest).encode()
        url = f"http://{self.address}/v2/{name}/manifests/{tag}"
        async with self.http.put(url, data=body, headers={"Content-Type": kind, **self.headers}) as answer:
            assert answer.status == 201, await answer.text()
        return digest(body)

    async def _blob(self, name: str, kind: str, content: bytes) -> dict[str, Any]:
        url = f"http://{self.address}/v2/{name}/blobs/uploads/"
        async with self.http.post(url, headers=self.headers) as answer:
            where = answer.headers["Location"]
        where = where if where.startswith("http") else f"http://{self.address}{where}"
        mark = "&" if "?" in where else "?"
        async with self.http.put(
            f"{where}{mark}digest={digest(content)}", data=io.BytesIO(content), headers=self.headers
        ) as answer:
            assert answer.status == 201, await answer.text()
        return {"mediaType": kind, "digest": digest(content), "size": len(content)}
