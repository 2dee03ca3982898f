"""Images as Docker describes them. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from rollbox import ImageConfig
from rollbox_bridges.docker.images import Image
from rollbox_bridges.docker.references import ARCHITECTURE, repository_of

_NEVER: Final = "1970-01-01T00:00:00Z"


def body(image: Image, tags: Sequence[str], config: ImageConfig | None) -> dict[str, Any]:
    """An image as an inspect tells it.

    Args:
        image: it.
        tags: all its names.
        config: what it says of its processes; None: it is not known.
    """
    said = config or ImageConfig(image.source)
    told: dict[str, Any] = {
        "Image": "",
        "Env": [f"{name}={value}" for name, value in said.env.items()],
        "Cmd": list(said.cmd) or None,
        "Entrypoint": list(said.entrypoint) or None,
        "Labels": dict(said.labels),
        "WorkingDir": said.cwd,
        "User": said.user,
        **({"ExposedPorts": {port: {} for port in said.ports}} if said.ports else {}),
        **({"StopSignal": said.stop_signal} if said.stop_signal else {}),
    }
    return {
        **_row(image, tags),
        "Os": "linux",
        "Architecture": said.architecture or ARCHITECTURE,
        "Created": said.created or _NEVER,
        "Config": told,
        "ContainerConfig": told,
    }


def rows(images: Iterable[Image]) -> list[dict[str, Any]]:
    """Images of a list, each once."""
    by_id: dict[str, list[Image]] = {}
    for one in images:
        by_id.setdefault(one.id, []).append(one)
    return [{**_row(same[0], [one.name for one in same]), "Created": 0} for same in by_id.values()]


def _row(image: Image, tags: Sequence[str]) -> dict[str, Any]:
    digest = f"{repository_of(image.name)[0]}@{image.digest}" if image.digest else ""
    return {
        "Id": image.id,
        "ParentId": "",
        "RepoTags": list(tags),
        "RepoDigests": [digest] if digest else [],
        "Size": image.size_bytes,
        "SharedSize": -1,
        "Labels": {},
        "Containers": -1,
    }
