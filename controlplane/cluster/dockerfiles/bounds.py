"""What a build may make and say, for every builder, and when two builds are of the same. Pure."""

import hashlib
import json
from collections.abc import Sequence
from typing import Final

from controlplane.cluster.dockerfiles.sources import File
from controlplane.cluster.protocol.builds import BuildWish
from controlplane.errors import Problem
from controlplane.images import MAX_LAYERS

# Of a build; what is said beyond that is left out.
MOST_LOG_BYTES: Final = 16 << 20
# A change of how images are made.
FORM: Final = 2


class Log:
    """What a builder says, as much of it as is told."""

    def __init__(self) -> None:
        self._said_bytes = 0

    def bounded(self, text: str) -> str:
        """The part of a text that is told; empty: too much was said before."""
        left = MOST_LOG_BYTES - self._said_bytes
        self._said_bytes += len(text)
        if left <= 0:
            return ""
        return text if len(text) <= left else f"{text[:left]}\n(what it says from here on is left out)\n"


def tag(wish: BuildWish, dockerfile: str, files: Sequence[File] = ()) -> str:
    """A hash of all that goes into an image.

    Args:
        wish: what is to be built.
        dockerfile: its text, in which images are named by what they are.
        files: that are made for it.
    """
    made = [(one.path, hashlib.sha256(one.content).hexdigest(), one.address, one.checksum) for one in files]
    parts = [FORM, dockerfile, made, wish.context_digest, sorted(wish.arguments.items()), wish.target]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:40]


def check_layers(count: int) -> None:
    """Refuses an image with more layers than nodes take.

    Raises:
        Problem: build_failed.
    """
    if count > MAX_LAYERS:
        detail = f"it has {count} layers, and an image has {MAX_LAYERS} at most: join steps of the Dockerfile"
        raise Problem("build_failed", f"no image was built: {detail}")


def check_size(size_bytes: int, max_bytes: int) -> None:
    """Refuses an image that is too large.

    Args:
        size_bytes: of the layers that its base has not.
        max_bytes: the most of these.

    Raises:
        Problem: payload_too_large.
    """
    if size_bytes > max_bytes:
        detail = f"what was built has {size_bytes} bytes beyond its base, and may have {max_bytes}"
        raise Problem("payload_too_large", detail, reason="image_too_large")
