"""Ids and names of containers and images. Pure."""

from __future__ import annotations

import hashlib
import platform
import re
from typing import Final

from rollbox_bridges.docker.words import Refusal, not_honoured

_NAME: Final = re.compile(r"/?([a-zA-Z0-9][a-zA-Z0-9_.-]+)")
_PART: Final = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_TAG: Final = re.compile(rf"(?:[a-zA-Z0-9.-]+(?::\d+)?/)?{_PART}(?:/{_PART})*(?::\w[\w.-]{{0,127}})?", re.ASCII)
_DEFAULT_REGISTRIES: Final = ("docker.io/library/", "docker.io/", "index.docker.io/library/", "index.docker.io/")
_LATEST: Final = "latest"
_CPUS: Final = {"x86_64": "amd64", "aarch64": "arm64"}
ARCHITECTURE: Final = _CPUS.get(platform.machine(), platform.machine())
"""Of this machine, which is taken for that of the sandboxes."""


def container_id(sandbox_id: str) -> str:
    """The id of a container: that of a sandbox, as 64 hexadecimal digits."""
    return hashlib.sha256(sandbox_id.encode()).hexdigest()


def checked_name(text: str) -> str:
    """Return the name that a container is to have, without its slash.

    Raises:
        Refusal: it cannot be one.
    """
    found = _NAME.fullmatch(text)
    if found is None or len(text) > 200:
        raise Refusal(
            400, f"Invalid container name ({text[:200]}), only [a-zA-Z0-9][a-zA-Z0-9_.-] are allowed, 2 to 200 of them"
        )
    return found[1]


def familiar(image: str) -> str:
    """An image's name as Docker's clients show it: without the default registry, with a tag."""
    name = image
    for registry in _DEFAULT_REGISTRIES:
        if name.startswith(registry):
            name = name.removeprefix(registry)
            break
    return name if "@" in name or ":" in name.rpartition("/")[2] else f"{name}:{_LATEST}"


def repository_of(image: str) -> tuple[str, str]:
    """Repository and tag of a familiar name; a digest is no tag."""
    if "@" in image:
        return image.partition("@")[0], "<none>"
    repository, _, tag = image.rpartition(":")
    return repository, tag


def joined(image: str, tag: str) -> str:
    """The name that a pull or a commit says in two parts."""
    if not tag or "@" in image:
        return image
    return f"{image}@{tag}" if tag.startswith("sha256:") else f"{image}:{tag}"


def short_id(text: str) -> str:
    """An id as people see it."""
    return text.removeprefix("sha256:")[:12]


def check_platform(text: str) -> None:
    """Check the platform that is asked for: where this machine's images run, those of the sandboxes do.

    Raises:
        Refusal: it is another one.
    """
    system, _, cpu = text.lower().partition("/")
    cpu = cpu.partition("/")[0]
    if text and (system != "linux" or (cpu and _CPUS.get(cpu, cpu) != ARCHITECTURE)):
        raise not_honoured(f"platform {text[:40]!r}", f"sandboxes run linux/{ARCHITECTURE}")


def is_id(text: str) -> bool:
    """Whether this can be nothing but the id of an image."""
    return text.startswith("sha256:")


def tag_of(text: str) -> str:
    """Read the name that an image is to get.

    Raises:
        Refusal: it can be none.
    """
    if len(text) > 256 or not _TAG.fullmatch(text):
        raise Refusal(400, f"invalid reference format: {text[:200]!r}")
    return familiar(text)


def image_id(image: str) -> str:
    """The id of an image here, by its familiar name."""
    return "sha256:" + hashlib.sha256(familiar(image).encode()).hexdigest()
