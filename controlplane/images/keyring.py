"""Credentials for registries, as Docker and Kubernetes write them (``.dockerconfigjson``)."""

import base64
import binascii
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, Final, Self

from controlplane.images.reference import DOCKER_HUB, Reference

# How Docker's own files name Docker Hub.
_HUB: Final = frozenset({"index.docker.io", "registry-1.docker.io", "docker.io"})


@dataclass(frozen=True, slots=True)
class Credentials:
    """A user of a registry."""

    username: str
    password: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Keyring:
    """Credentials by the registries, or repositories of registries, that they are for.

    Attributes:
        missing: why credentials are not in it that should be, for people; empty: none are missing.
        others_missing: credentials of some owner were never read: nobody knows which images they are for.
    """

    entries: Mapping[str, Credentials] = field(default_factory=dict)
    missing: str = ""
    others_missing: bool = False

    @classmethod
    def of(cls, texts: Iterable[str], missing: str = "", *, others_missing: bool = False) -> Self:
        """Reads ``.dockerconfigjson`` texts; of two entries for one place the first holds.

        Args:
            texts: what they say.
            missing: see the attribute.
            others_missing: see the attribute.

        Raises:
            ValueError: one is malformed; the message repeats nothing of it.
        """
        entries: dict[str, Credentials] = {}
        for text in texts:
            for place, credentials in _read(text).items():
                entries.setdefault(place, credentials)
        return cls(entries, missing, others_missing)

    def find(self, reference: Reference) -> Credentials | None:
        """The credentials for an image: those for the longest part of its name; None: there are none.

        As in Kubernetes a part of a host name may be ``*`` (``*.example.com``).
        """
        name = reference.name.split("/")
        fitting = [place for place in self.entries if _covers(place.split("/"), name)]
        return self.entries[max(fitting, key=lambda place: (place.count("/"), len(place)))] if fitting else None


def _covers(place: list[str], name: list[str]) -> bool:
    host, asked = place[0].split("."), name[0].split(".")
    same_host = len(host) == len(asked) and all(map(fnmatchcase, asked, host))
    return same_host and place[1:] == name[1 : len(place)]


def _read(text: str) -> dict[str, Credentials]:
    try:
        auths = json.loads(text)["auths"]
        return {_place(place): _credentials(entry) for place, entry in auths.items() if entry}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError("not a .dockerconfigjson: an object with 'auths'") from error


def _place(text: str) -> str:
    place = text.removeprefix("https://").removeprefix("http://").strip("/")
    host, slash, path = place.partition("/")
    # Docker's files have the path of the registry's version there: https://index.docker.io/v1/
    path = "" if path in ("v1", "v2") else path
    host = DOCKER_HUB if host.lower() in _HUB else host.lower()
    return f"{host}{slash}{path}" if path else host


def _credentials(entry: Mapping[str, Any]) -> Credentials:
    if "auth" not in entry:
        return Credentials(str(entry["username"]), str(entry["password"]))
    try:
        username, colon, password = base64.b64decode(entry["auth"], validate=True).decode().partition(":")
    except binascii.Error as error:
        raise ValueError("auth is not base64") from error
    if not colon:
        raise ValueError("auth has no colon")
    return Credentials(username, password)
