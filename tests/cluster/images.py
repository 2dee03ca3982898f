"""Images of a few files, made and pushed without an engine: one layer, straight to the registry's HTTP interface."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.cluster.layout import COREDNS_IMAGE, PAUSE_IMAGE, REGISTRY
from tests.cluster.toolchain import program

BASE = "http://127.0.0.1:5000/v2"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
CONFIG = "application/vnd.oci.image.config.v1+json"
LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"


def push_own() -> None:
    """The two images without which no pod starts: the pods' first process, and the cluster's DNS."""
    push(PAUSE_IMAGE, {"pause": Path(program("pause"))}, ["/pause"])
    push(COREDNS_IMAGE, {"coredns": Path(program("coredns"))}, ["/coredns"])


def push(
    image: str, files: Mapping[str, Path], entrypoint: Sequence[str], links: Mapping[str, str] | None = None
) -> None:
    """Push an image with these files (path in the image -> file here) and symbolic links."""
    name, _, tag = image.removeprefix(f"{REGISTRY}/").rpartition(":")
    layer = _layer(files, links or {})
    config = {
        "architecture": "amd64",
        "os": "linux",
        "config": {"Entrypoint": list(entrypoint), "Env": ["PATH=/bin"], "WorkingDir": "/"},
        "rootfs": {"type": "layers", "diff_ids": [digest(layer)]},
    }
    # Level 1: the registry is on this machine, so time counts and size does not.
    push_image(name, tag, json.dumps(config).encode(), [gzip.compress(layer, compresslevel=1, mtime=0)])


def push_image(name: str, tag: str, config: bytes, layers: Sequence[bytes], *, config_type: str = CONFIG) -> None:
    """Push an image of these blobs, or an artifact, whose settings have another type."""
    for blob in (config, *layers):
        _push_blob(name, blob)

    def part(kind: str, blob: bytes) -> dict[str, str | int]:
        return {"mediaType": kind, "digest": digest(blob), "size": len(blob)}

    parts = {"config": part(config_type, config), "layers": [part(LAYER, layer) for layer in layers]}
    manifest = {"schemaVersion": 2, "mediaType": MANIFEST, **parts}
    _send("PUT", f"{BASE}/{name}/manifests/{tag}", json.dumps(manifest).encode(), MANIFEST)


def _layer(files: Mapping[str, Path], links: Mapping[str, str]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for folder in ("bin", "etc", "proc", "srv", "sys", "dev", "tmp"):
            entry = tarfile.TarInfo(folder)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o1777 if folder == "tmp" else 0o755
            tar.addfile(entry)
        for path, source in files.items():
            entry = tarfile.TarInfo(path)
            content = source.read_bytes()
            entry.size, entry.mode = len(content), 0o755
            tar.addfile(entry, io.BytesIO(content))
        for path, target in links.items():
            entry = tarfile.TarInfo(path)
            entry.type, entry.linkname = tarfile.SYMTYPE, target
            tar.addfile(entry)
    return buffer.getvalue()


def _push_blob(name: str, blob: bytes) -> None:
    named = digest(blob)
    try:
        _send("HEAD", f"{BASE}/{name}/blobs/{named}")
    except urllib.error.HTTPError:
        where = _send("POST", f"{BASE}/{name}/blobs/uploads/")
        mark = "&" if "?" in where else "?"
        _send("PUT", f"{where}{mark}digest={named}", blob, "application/octet-stream")


def _send(method: str, url: str, body: bytes | None = None, kind: str = "") -> str:
    """The address that the answer names, if it names one."""
    request = urllib.request.Request(url, data=body, method=method, headers={"Content-Type": kind} if kind else {})
    with urllib.request.urlopen(request, timeout=30) as answer:
        return str(answer.headers.get("Location") or "")


def digest(content: bytes) -> str:
    """As registries name a content."""
    return f"sha256:{hashlib.sha256(content).hexdigest()}"
