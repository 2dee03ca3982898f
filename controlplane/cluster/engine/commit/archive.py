"""An image as an archive that engines load, with its own layer alone: those below the engine has already. Pure.

It is an OCI image layout (https://github.com/opencontainers/image-spec/blob/main/image-layout.md), which Podman reads,
with the ``manifest.json`` that Docker reads. Both look for a layer among those that they have before they look into the
archive, so that a commit does not carry its image's layers through an upload.
"""

import hashlib
import json
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

# What an image says about the processes that run from it, as the engine tells it. Not its volumes: what is in these
# folders is in the layer, and would be copied at each start.
_SETTINGS: Final = (
    "User",
    "Env",
    "Entrypoint",
    "Cmd",
    "WorkingDir",
    "Labels",
    "ExposedPorts",
    "StopSignal",
    "Shell",
    "OnBuild",
    "Healthcheck",
)
_INDEX: Final = "application/vnd.oci.image.index.v1+json"
_MANIFEST: Final = "application/vnd.oci.image.manifest.v1+json"
_CONFIG: Final = "application/vnd.oci.image.config.v1+json"
_LAYER: Final = "application/vnd.oci.image.layer.v1.tar"
_NAME: Final = "org.opencontainers.image.ref.name"
_END: Final = b"\0" * 2 * tarfile.BLOCKSIZE


@dataclass(frozen=True, slots=True)
class Archive:
    """The bytes before and behind the layer, and the digest of the image, which is the engine's id of it."""

    head: bytes
    tail: bytes
    digest: str


def archive(
    base: Mapping[str, Any], layer: str, size_bytes: int, *, name: str, created: str, squashed: int = 0
) -> Archive:
    """An image that has one more layer than another one, and else says what that says.

    Args:
        base: the other one, as an inspection tells it.
        squashed: how many of its topmost layers the new one stands for.
        layer: the digest of the new layer, which is not compressed.
        size_bytes: its length.
        name: what the new image is called, with a tag; its part ``{id}`` stands for the digits of its digest.
        created: the time, RFC 3339.
    """
    settings = base.get("Config") or {}
    below = (base.get("RootFS") or {}).get("Layers", ())
    layers = [*below[: len(below) - squashed], layer]
    config = _json(
        {
            **{ours: base[theirs] for ours, theirs in _PLATFORM.items() if base.get(theirs)},
            "created": created,
            "config": {one: settings[one] for one in _SETTINGS if settings.get(one)},
            "rootfs": {"type": "layers", "diff_ids": layers},
        }
    )
    digest = _digest(config)
    name = name.replace("{id}", digest.partition(":")[2])
    # The engine has the other layers and does not look at what is said of their length.
    parts = [{"mediaType": _LAYER, "digest": one, "size": size_bytes if one == layer else 0} for one in layers]
    manifest = _json({"schemaVersion": 2, "mediaType": _MANIFEST, "config": _part(_CONFIG, config), "layers": parts})
    index = {"schemaVersion": 2, "mediaType": _INDEX, "manifests": [_part(_MANIFEST, manifest, {_NAME: name})]}
    for_docker = [{"Config": _path(digest), "RepoTags": [name], "Layers": [_path(one) for one in layers]}]
    small = {
        "oci-layout": _json({"imageLayoutVersion": "1.0.0"}),
        "index.json": _json(index),
        "manifest.json": _json(for_docker),
        _path(digest): config,
        _path(_digest(manifest)): manifest,
    }
    head = b"".join(_entry(path, len(data)) + data + _padding(len(data)) for path, data in small.items())
    return Archive(head + _entry(_path(layer), size_bytes), _padding(size_bytes) + _END, digest)


_PLATFORM: Final = {"architecture": "Architecture", "variant": "Variant", "os": "Os", "author": "Author"}


def _part(kind: str, data: bytes, annotations: Mapping[str, str] | None = None) -> dict[str, object]:
    told: dict[str, object] = {"mediaType": kind, "digest": _digest(data), "size": len(data)}
    return {**told, "annotations": annotations} if annotations else told


def _path(digest: str) -> str:
    return f"blobs/{digest.replace(':', '/')}"


def _digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def _json(content: object) -> bytes:
    return json.dumps(content, sort_keys=True).encode()


def _entry(path: str, size_bytes: int) -> bytes:
    entry = tarfile.TarInfo(path)
    entry.size = size_bytes
    # PAX knows sizes of more than 8 GiB.
    return entry.tobuf(tarfile.PAX_FORMAT)


def _padding(size_bytes: int) -> bytes:
    return b"\0" * (-size_bytes % tarfile.BLOCKSIZE)
