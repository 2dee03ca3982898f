"""Whether an image can run, by its manifest: what is certain to fail is refused before anything is started.

Sources: OCI image specification 1.1 (https://github.com/opencontainers/image-spec), Docker's "Image Manifest V 2,
Schema 2". Every refusal is ``unsupported`` with the option ``image``.
"""

import hashlib
import json
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from controlplane.errors import Problem
from controlplane.images.reference import DIGEST

OCI_INDEX: Final = "application/vnd.oci.image.index.v1+json"
OCI_MANIFEST: Final = "application/vnd.oci.image.manifest.v1+json"
DOCKER_LIST: Final = "application/vnd.docker.distribution.manifest.list.v2+json"
DOCKER_MANIFEST: Final = "application/vnd.docker.distribution.manifest.v2+json"
SCHEMA_1: Final = "application/vnd.docker.distribution.manifest.v1+"
ACCEPTED: Final = (OCI_INDEX, DOCKER_LIST, OCI_MANIFEST, DOCKER_MANIFEST)
# What the OCI distribution specification asks registries to take at least; no node needs to read more.
MAX_MANIFEST_BYTES: Final = 4 << 20
# Overlay file systems: the kernel takes mount options of one page, which 127 layers fill; Docker has the same limit.
MAX_LAYERS: Final = 127
MAX_ENTRIES: Final = 1024
_CONFIGS: Final = (
    "application/vnd.oci.image.config.v1+json",
    "application/vnd.docker.container.image.v1+json",
)
# The bytes of the layers that an image's base has not, where it says them: what is made of a sandbox has one.
OWN_BYTES: Final = "dev.rollbox.own-bytes"
_FOREIGN: Final = (".foreign.", ".nondistributable.")
# Architectures that a processor can run besides its own.
_ALSO: Final = {"amd64": ("386",), "arm64": ("arm",)}


@dataclass(frozen=True, slots=True)
class Entry:
    """A manifest that an index names."""

    digest: str
    architecture: str
    nested: bool = False


def digest_of(body: bytes, like: str = "sha256:") -> str:
    """The digest of a content, by the algorithm of the digest ``like``."""
    algorithm = like.partition(":")[0]
    return f"{algorithm}:{hashlib.new(algorithm, body).hexdigest()}"


def is_index(media_type: str, body: bytes) -> bool:
    """Whether this is an index of manifests; the body decides where the registry does not say."""
    if media_type in ACCEPTED:
        return media_type in (OCI_INDEX, DOCKER_LIST)
    return "manifests" in _object("the manifest", body)


def entries_for(image: str, body: bytes, architectures: Collection[str]) -> Sequence[Entry]:
    """The entries of an index that nodes of these architectures would choose, one at most for each.

    Args:
        image: its name, for the words of a refusal.
        body: the index.
        architectures: of the nodes, as images name them; empty: not known, nothing is refused or chosen.

    Raises:
        Problem: unsupported, it is malformed, or has nothing for any of the architectures.
    """
    listed = _object(image, body).get("manifests")
    if not isinstance(listed, list) or len(listed) > MAX_ENTRIES:
        raise _refusal(image, f"its index has no list of at most {MAX_ENTRIES} manifests")
    entries = [entry for one in listed if (entry := _entry(image, one)) is not None]
    first = {one.architecture: one for one in reversed(entries)}
    own = [next((first[name] for name in (one, *_ALSO.get(one, ())) if name in first), None) for one in architectures]
    chosen = [entry for entry in own if entry is not None]
    if architectures and not chosen:
        there = ", ".join(sorted({one.architecture for one in entries})) or "nothing"
        raise _refusal(image, f"it has {there} for Linux, and the nodes are {', '.join(sorted(architectures))}")
    return chosen


def checked_manifest(image: str, media_type: str, body: bytes) -> str:
    """Checks the manifest of one platform; returns the digest of its configuration.

    Raises:
        Problem: unsupported, no sandbox can start from it.
    """
    manifest = _object(image, body)
    if media_type.startswith(SCHEMA_1) or manifest.get("schemaVersion") == 1:
        raise _refusal(image, "its manifest has schema 1, which no container runtime takes any more: push it anew")
    config, layers = manifest.get("config"), manifest.get("layers")
    if not isinstance(config, dict) or not isinstance(layers, list) or not all(isinstance(one, dict) for one in layers):
        raise _refusal(image, "its manifest has no configuration or no list of layers")
    if config.get("mediaType") not in _CONFIGS:
        raise _refusal(image, f"it is no container image but {str(config.get('mediaType'))[:100]!r}")
    if not 1 <= len(layers) <= MAX_LAYERS:
        raise _refusal(image, f"it has {len(layers)} layers; a container needs 1 to {MAX_LAYERS}")
    for layer in layers:
        kind = str(layer.get("mediaType") or "")
        if any(word in kind for word in _FOREIGN):
            raise _refusal(image, f"it has a layer that its registry does not hold ({kind[:100]})")
        _digest(image, layer.get("digest"))
    return _digest(image, config.get("digest"))


def layers_of(body: bytes) -> Mapping[str, int]:
    """The layers of a manifest that was checked, with the bytes that it says of each."""
    sizes = ((str(one["digest"]), one.get("size")) for one in json.loads(body)["layers"])
    return {sys.intern(digest): size if isinstance(size, int) and size > 0 else 0 for digest, size in sizes}


def own_bytes(manifest: Mapping[str, Any]) -> int:
    """The bytes of the layers of an image of ours that its base has not. Cost: none."""
    told = str((manifest.get("annotations") or {}).get(OWN_BYTES) or "")
    return int(told) if told.isascii() and told.isdigit() else int(manifest["layers"][-1]["size"])


def checked_config(image: str, body: bytes, architectures: Collection[str]) -> None:
    """Checks an image's configuration against the nodes' architectures; empty: not known, all are accepted.

    Raises:
        Problem: unsupported, it is for another platform.
    """
    config = _object(image, body)
    system, architecture = str(config.get("os") or "linux"), str(config.get("architecture") or "")
    if system != "linux":
        raise _refusal(image, f"it is for {system[:40]!r}, and sandboxes are Linux")
    if architectures and architecture and architecture not in _runnable(architectures):
        there = ", ".join(sorted(architectures))
        raise _refusal(image, f"it is for {architecture[:40]!r}, and the nodes are {there}")


def _entry(image: str, listed: Any) -> Entry | None:  # noqa: ANN401 - JSON
    """None for what no node chooses: other systems, and attestations, which name the system ``unknown``."""
    if not isinstance(listed, dict):
        raise _refusal(image, "its index is malformed")
    platform = listed.get("platform")
    if not isinstance(platform, dict) or platform.get("os") != "linux":
        return None
    nested = listed.get("mediaType") in (OCI_INDEX, DOCKER_LIST)
    return Entry(_digest(image, listed.get("digest")), str(platform.get("architecture"))[:40], nested)


def _runnable(architectures: Collection[str]) -> set[str]:
    return {*architectures, *(also for one in architectures for also in _ALSO.get(one, ()))}


def _digest(image: str, value: object) -> str:
    if not isinstance(value, str) or not DIGEST.fullmatch(value):
        raise _refusal(image, "its manifest names content by something that is no digest")
    return value


def _object(image: str, body: bytes) -> Mapping[str, Any]:
    try:
        value = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise _refusal(image, "what its registry has under this name is not JSON") from error
    if not isinstance(value, dict):
        raise _refusal(image, "what its registry has under this name is no manifest")
    return value


def _refusal(image: str, why: str) -> Problem:
    return Problem("unsupported", f"image {image} cannot run here: {why}", option="image")
