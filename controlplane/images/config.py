"""``ImageConfig``: what an image says of the processes that run from it. Pure.

Source: OCI image specification 1.1, "OCI Image Configuration"; engines tell the same names when they inspect an image.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from controlplane.errors import Problem


@dataclass(frozen=True, slots=True)
class ImageConfig:
    """What an image says of the processes that run from it.

    Attributes:
        digest: of the image, by which a start takes it.
        architecture: that it is for; empty: it does not say.
        created: the time (RFC 3339); empty: it does not say.
        entrypoint, cmd: the words of its command; none: it has no such.
        env: ``NAME=VALUE`` each.
        cwd, user: empty: ``/``, and root.
        stop_signal: that asks its command to end; empty: SIGTERM.
        labels: of it.
        ports: that its programs listen at, as ``8000/tcp``.
    """

    digest: str
    architecture: str = ""
    created: str = ""
    entrypoint: Sequence[str] = ()
    cmd: Sequence[str] = ()
    env: Sequence[str] = ()
    cwd: str = ""
    user: str = ""
    stop_signal: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    ports: Sequence[str] = ()

    @classmethod
    def read(cls, image: str, digest: str, said: Mapping[str, Any], config: object) -> "ImageConfig":
        """From what a registry has of an image, or an engine says of it.

        Args:
            image: its name, for the words of a refusal.
            digest: of it.
            said: has its architecture and its time, in small letters.
            config: of its processes.

        Raises:
            Problem: unsupported, it is malformed.
        """
        told = config if config is not None else {}
        if not isinstance(told, Mapping):
            raise _refusal(image, "config")
        labels = told.get("Labels") or {}
        ports = told.get("ExposedPorts") or {}
        if not isinstance(labels, Mapping) or not isinstance(ports, Mapping):
            raise _refusal(image, "Labels or ExposedPorts")
        return cls(
            digest,
            architecture=_text(image, "architecture", said.get("architecture")),
            created=_text(image, "created", said.get("created")),
            labels={str(name): _text(image, "Labels", value) for name, value in labels.items()},
            ports=tuple(map(str, ports)),
            entrypoint=_texts(image, "Entrypoint", told.get("Entrypoint")),
            cmd=_texts(image, "Cmd", told.get("Cmd")),
            env=_texts(image, "Env", told.get("Env")),
            cwd=_text(image, "WorkingDir", told.get("WorkingDir")),
            user=_text(image, "User", told.get("User")),
            stop_signal=_text(image, "StopSignal", told.get("StopSignal")),
        )

    @classmethod
    def parsed(cls, image: str, digest: str, body: bytes) -> "ImageConfig":
        """From the configuration that a registry has.

        Raises:
            Problem: unsupported, it is malformed.
        """
        try:
            said = json.loads(body)
        except (ValueError, RecursionError) as error:
            raise _refusal(image, "as a whole") from error
        if not isinstance(said, Mapping):
            raise _refusal(image, "as a whole")
        return cls.read(image, digest, said, said.get("config"))


def _text(image: str, name: str, value: object) -> str:
    if value is not None and not isinstance(value, str):
        raise _refusal(image, name)
    return value or ""


def _texts(image: str, name: str, value: object) -> Sequence[str]:
    if value is not None and not isinstance(value, list):
        raise _refusal(image, name)
    return tuple(_text(image, name, one) for one in value or ())


def _refusal(image: str, where: str) -> Problem:
    detail = f"the configuration of image {image} is malformed ({where})"
    return Problem("unsupported", detail, option="image")
