"""What an image says to those that are built on it.

The engine's API tells neither the triggers of an image nor the shell of its steps, and its builder follows both. So its
configuration is read where the engine keeps it, by the hash that is the image's id.
"""

import base64
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from controlplane.errors import Problem


def read(root: str, driver: str, image_id: str) -> Mapping[str, Any]:
    """The configuration of an image. Blocks, for one small file.

    Args:
        root: where the engine keeps its images.
        driver: by which.
        image_id: 64 hex digits.

    Raises:
        Problem: unsupported: it is not there, or another one.
    """
    key = base64.b64encode(f"sha256:{image_id}".encode()).decode()
    try:
        content = (Path(root) / f"{driver}-images" / image_id / f"={key}").read_bytes()
    except OSError as error:
        raise _unread(image_id, str(error)) from error
    if hashlib.sha256(content).hexdigest() != image_id:
        raise _unread(image_id, "it has another hash")
    told: Mapping[str, Any] = json.loads(content)
    return told


def _unread(image_id: str, why: str) -> Problem:
    detail = f"what the image {image_id[:12]} says to those that are built on it cannot be read from the engine: {why}"
    return Problem("unsupported", detail, option="engine")
