"""What a build reads and makes, as manifests; what a builder says is a stranger's. Pure."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from controlplane.cluster.dockerfiles.bounds import check_layers, check_size
from controlplane.errors import Problem
from controlplane.images import DIGEST, OWN_BYTES

MANIFEST: Final = "application/vnd.oci.image.manifest.v1+json"
CONFIG: Final = "application/vnd.oci.image.config.v1+json"
LAYERS: Final = frozenset(
    {f"application/vnd.oci.image.layer.v1.tar{how}" for how in ("", "+gzip", "+zstd")}
    | {"application/vnd.docker.image.rootfs.diff.tar.gzip"}
)
MOST_CONFIG_BYTES: Final = 4 << 20


@dataclass(frozen=True, slots=True)
class Blob:
    """A content of an image.

    Attributes:
        kind: its media type.
    """

    digest: str
    size_bytes: int
    kind: str = ""

    def described(self) -> dict[str, Any]:
        """As manifests have it."""
        return {"mediaType": self.kind, "digest": self.digest, "size": self.size_bytes}


@dataclass(frozen=True, slots=True)
class Base:
    """An image that a build reads.

    Attributes:
        name: as the Dockerfile has it.
        repository: of the private registry.
        digest: of its manifest, which is that of one platform.
        manifest: its bytes.
        config, layers: what it names.
    """

    name: str
    repository: str
    digest: str
    manifest: bytes
    config: Blob
    layers: Sequence[Blob]

    @property
    def size_bytes(self) -> int:
        """Of all its layers."""
        return sum(layer.size_bytes for layer in self.layers)


@dataclass(frozen=True, slots=True)
class Made:
    """What a builder has made, and may stay.

    Attributes:
        config: is with the builder, as the layers are that no base has.
        own: those.
        below: the others, each with the repository of a base that has it.
        layers: all, from the bottom.
    """

    config: Blob
    layers: Sequence[Blob]
    own: Sequence[Blob]
    below: Mapping[str, str]

    @property
    def size_bytes(self) -> int:
        """Of the layers that no base has."""
        return sum(layer.size_bytes for layer in self.own)

    def manifest(self) -> bytes:
        """The manifest that is put into the registry: nothing of it is the builder's own words."""
        told = {
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": self.config.described(),
            "layers": [layer.described() for layer in self.layers],
            "annotations": {OWN_BYTES: str(self.size_bytes)},
        }
        return json.dumps(told, separators=(",", ":")).encode()


def made(said: object, bases: Sequence[Base], max_bytes: int) -> Made:
    """Reads what a builder says that it has made.

    A layer that a base has is the base's: it is there already, and never asked of the builder. Every other one has to
    come from the builder, whatever the registry has by its digest: it may be another owner's.

    Args:
        said: a manifest.
        bases: what the build reads.
        max_bytes: the most that layers may have that no base has.

    Raises:
        Problem: internal: it is no manifest; build_failed, payload_too_large: it is one that may not stay.
    """
    try:
        manifest: Any = said
        config = _blob(manifest["config"], {CONFIG})
        layers = [_blob(one, LAYERS) for one in manifest["layers"] or ()]
    except (KeyError, TypeError, ValueError) as error:
        raise Problem("internal", f"no image was built: the builder has made what is no image: {error}") from error
    if not layers:
        detail = "no image was built: it has no file at all, and a sandbox needs some: COPY or ADD one"
        raise Problem("build_failed", detail)
    check_layers(len(layers))
    if config.size_bytes > MOST_CONFIG_BYTES:
        raise Problem("build_failed", f"no image was built: its configuration has more than {MOST_CONFIG_BYTES} bytes")
    known = {layer.digest: base.repository for base in bases for layer in base.layers}
    own = list({one.digest: one for one in layers if one.digest not in known}.values())
    found = Made(config, layers, own, {one.digest: known[one.digest] for one in layers if one.digest in known})
    check_size(found.size_bytes, max_bytes)
    return found


def _blob(said: Any, kinds: frozenset[str] | set[str]) -> Blob:  # noqa: ANN401 - JSON
    digest, size_bytes, kind = said["digest"], said["size"], said["mediaType"]
    if kind not in kinds or not isinstance(size_bytes, int) or isinstance(size_bytes, bool) or size_bytes < 0:
        raise ValueError(f"{str(kind)[:100]!r} of {str(size_bytes)[:20]} bytes")
    if not isinstance(digest, str) or not DIGEST.fullmatch(digest) or not digest.startswith("sha256:"):
        raise ValueError(f"no digest: {str(digest)[:100]!r}")
    return Blob(digest, size_bytes, kind)
