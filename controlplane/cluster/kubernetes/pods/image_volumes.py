"""Data sets that are images, which a kubelet pulls with those of a pod's containers and tells of in the same words."""

from collections.abc import Mapping
from typing import Any, Final

MOST_WORDS_CHARS: Final = 400
# Of containerd, for an image that it has and cannot mount.
_NOT_MOUNTED: Final = "failed to mount image volume"


def kept(pod: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The part of a pod's volumes that ``unavailable`` reads; pure."""
    volumes = (pod.get("spec") or {}).get("volumes") or ()
    return [
        {"name": one["name"], "image": {"reference": reference}}
        for one in volumes
        if (reference := (one.get("image") or {}).get("reference"))
    ]


def unavailable(pod: Mapping[str, Any], image: str, message: str, names: Mapping[str, str]) -> str:
    """Why a container waits, if that is an image that it mounts; empty: it waits for something else; pure.

    Args:
        pod: the API's object, or the part of it that ``trimmed`` keeps.
        image: the container's own.
        message: the kubelet's about the container.
        names: what the pod's volumes are, for people, by their names.
    """
    images = {one["name"]: one["image"]["reference"] for one in kept(pod)}
    concerned = list(images) if _NOT_MOUNTED in message else _named(images, image, message)
    if not concerned:
        return ""
    node = str((pod.get("spec") or {}).get("nodeName") or "")
    which = " or ".join(dict.fromkeys(f"the {names.get(one, f'volume {one}')}" for one in concerned))
    return f"{which} cannot be mounted on node {node}: {message[:MOST_WORDS_CHARS]}"


def _named(images: Mapping[str, str], image: str, message: str) -> list[str]:
    """The names of the volumes whose image is in a message; empty if it is about the container's own image."""
    told = [reference for reference in (image, *images.values()) if reference and reference in message]
    # The name of one may be a part of another's.
    longest = max(told, key=len, default="")
    return [] if longest == image else [name for name, one in images.items() if one == longest]
