"""What a sandbox mounts besides its image: data sets and scratch. Pure: arguments to request bodies, JSON to values."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, TypeAlias

from rollbox import request
from rollbox.errors import InvalidArgument
from rollbox.quantity import Size, parse_memory


@dataclass(frozen=True, slots=True)
class Dataset:
    """A data set of the installation, by name; it is mounted read only.

    Raises:
        InvalidArgument: the name is no text.
    """

    name: str

    def __post_init__(self) -> None:
        self.to_json()

    def to_json(self) -> dict[str, Any]:
        """Write the wire form."""
        return {"dataset": _name("the name of a Dataset", self.name)}


@dataclass(frozen=True, slots=True)
class Scratch:
    """A folder that all sandboxes of a group share that name it; of those in no group, all of yours that name it.

    It begins empty, any user of a sandbox may write to it, and it goes with the last sandbox that has it.

    Attributes:
        name: with the same name two groups have two folders, and so have two owners.
        size: bytes or a size, the most that it holds; None: 1 GiB. All that share it give the same.

    Raises:
        InvalidArgument: the name is no text, or the size is none.
    """

    name: str
    size: Size | None = None

    def __post_init__(self) -> None:
        self.to_json()

    def to_json(self) -> dict[str, Any]:
        """Write the wire form."""
        size = {} if self.size is None else {"size_bytes": parse_memory(self.size, name="size")}
        return {"scratch": _name("the name of a Scratch", self.name), **size}


Mounts: TypeAlias = Mapping[Any, Dataset | Scratch]
"""By absolute path in the sandbox, as text or path object."""


@dataclass(frozen=True, slots=True)
class DatasetRecord:
    """A data set that you may mount.

    Attributes:
        source: where its files are; "" unless the key is an operator's.
        owners: who may mount it; empty: everybody.
        trouble: why it cannot be mounted now; "": it can.
    """

    name: str
    source: str = ""
    owners: tuple[str, ...] = ()
    trouble: str = ""

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> DatasetRecord:
        """Read the wire form; fields that this version does not know are left out."""
        known = {item.name: body[item.name] for item in fields(cls) if item.name in body}
        return cls(**{**known, "owners": tuple(known.get("owners", ()))})

    def to_json(self) -> dict[str, Any]:
        """Return all fields as JSON."""
        return {**asdict(self), "owners": list(self.owners)}


DatasetRecords: TypeAlias = list[DatasetRecord]


def mounts_body(mounts: Mounts) -> dict[str, Any]:
    """Write the mounts of a create by path. The server says what else of them is not sound.

    Raises:
        InvalidArgument: a path is not absolute, is given twice, or has neither a Dataset nor a Scratch.
    """
    if not isinstance(mounts, Mapping):
        raise InvalidArgument(f"mounts {mounts!r} is not a mapping of paths, like {{'/data': Dataset('imagenet')}}")
    body: dict[str, Any] = {}
    for given, mount in mounts.items():
        path = request.text("a path in mounts", os.fspath(given) if isinstance(given, os.PathLike) else given)
        if not path.startswith("/"):
            raise InvalidArgument(f"mounts: {path!r} is not an absolute path")
        if not isinstance(mount, Dataset | Scratch):
            raise InvalidArgument(f"mounts[{path!r}] is {mount!r}, and neither a Dataset nor a Scratch")
        if path in body:
            raise InvalidArgument(f"mounts: {path} is given twice")
        body[path] = mount.to_json()
    return body


def dataset_body(
    claim: str | None, image: str | None, folder: str | None, owners: Sequence[str]
) -> dict[str, str | list[str]]:
    """Write the body that declares a data set.

    Args:
        claim: a PersistentVolumeClaim, by name.
        image: an OCI image or artifact.
        folder: of every node.
        owners: who may mount it; empty: everybody.

    Raises:
        InvalidArgument: not exactly one source is given, or one of the values is no text.
    """
    given = {"claim": claim, "image": image, "folder": folder}
    sources = {name: request.text(name, value) for name, value in given.items() if value is not None}
    if len(sources) != 1:
        raise InvalidArgument("give one of claim, image and folder")
    if isinstance(owners, str):
        raise InvalidArgument(f"owners {owners!r} is a text, and not a list of names")
    named = [request.text("a name in owners", owner) for owner in owners]
    return {**sources, **({"owners": named} if named else {})}


def _name(what: str, name: str) -> str:
    if not request.text(what, name):
        raise InvalidArgument(f"{what} is empty")
    return name
