"""Devices by the Container Device Interface (CDI): what this machine's specifications say of a kind. Pure, but `read`.

Of an engine's API only Docker's newest know CDI; Podman's leaves such a request out without a word. So what a
specification says is done here, with what every engine knows: device nodes, mounts and variables.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

FOLDERS: Final = (Path("/etc/cdi"), Path("/var/run/cdi"))
_KIND: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*/[A-Za-z0-9][A-Za-z0-9_.-]*")
# What a specification may ask for and no engine's API takes.
_FOREIGN: Final = ("hooks", "intelRdt", "additionalGids", "netDevices")
# A device of this name stands for all others.
_ALL: Final = "all"


class SpecificationError(ValueError):
    """What is wrong with a specification, or with what was asked of it."""


@dataclass(frozen=True, slots=True)
class Device:
    """One device of a kind.

    Attributes:
        name: within the kind.
        nodes: path on this machine, path in the container, permissions of the control group.
        binds: as an engine's API takes them.
        env: variables, `NAME=value`.
    """

    name: str
    nodes: tuple[tuple[str, str, str], ...]
    binds: tuple[str, ...] = ()
    env: tuple[str, ...] = ()


def read(folders: Iterable[Path] = FOLDERS) -> list[Mapping[str, Any]]:
    """The specifications of this machine, in the order of their names.

    Raises:
        SpecificationError: one cannot be read.
    """
    found: list[Mapping[str, Any]] = []
    for path in sorted(one for folder in folders if folder.is_dir() for one in folder.iterdir()):
        if path.suffix not in (".json", ".yaml", ".yml"):
            continue
        try:
            text = path.read_text()
            told = json.loads(text) if path.suffix == ".json" else yaml.safe_load(text)
        except (OSError, ValueError, yaml.YAMLError) as error:
            raise SpecificationError(f"{path} cannot be read: {error}") from error
        if not isinstance(told, Mapping):
            raise SpecificationError(f"{path} is no object")
        found.append(told)
    return found


def devices(kind: str, specifications: Sequence[Mapping[str, Any]]) -> tuple[Device, ...]:
    """The devices of a kind, like ``nvidia.com/gpu``, by name; one that stands for all others is left out.

    Raises:
        SpecificationError: there is none, or one needs what cannot be done here.
    """
    if not _KIND.fullmatch(kind):
        raise SpecificationError(f"{kind!r} is not the kind of a device, like nvidia.com/gpu")
    found: dict[str, Device] = {}
    for told in specifications:
        if told.get("kind") == kind:
            try:
                found |= _of(kind, told)
            except (AttributeError, KeyError, TypeError) as error:
                raise SpecificationError(f"a specification of the kind {kind} is malformed: {error!r}") from error
    if not found:
        places = ", ".join(str(folder) for folder in FOLDERS)
        raise SpecificationError(f"no specification in {places} has a device of the kind {kind}")
    return tuple(found[name] for name in sorted(found))


def _of(kind: str, told: Mapping[str, Any]) -> dict[str, Device]:
    common = _edits(kind, told.get("containerEdits") or {})
    found = {}
    for one in told.get("devices") or ():
        name = str(one["name"])
        if name != _ALL:
            own = _edits(f"{kind}={name}", one.get("containerEdits") or {})
            found[name] = Device(name, *(mine + theirs for mine, theirs in zip(own, common, strict=True)))
    return found


def _edits(what: str, edits: Mapping[str, Any]) -> tuple[tuple[Any, ...], ...]:
    if foreign := [name for name in _FOREIGN if edits.get(name)]:
        raise SpecificationError(f"{what} needs {', '.join(foreign)}, which is not to be had by an engine's API")
    nodes = tuple(
        (str(one.get("hostPath") or one["path"]), str(one["path"]), str(one.get("permissions") or "rwm"))
        for one in edits.get("deviceNodes") or ()
    )
    binds = tuple(
        f"{one['hostPath']}:{one['containerPath']}:{'ro' if 'ro' in (one.get('options') or ()) else 'rw'}"
        for one in edits.get("mounts") or ()
    )
    if wrong := [path for path in (*(part for one in nodes for part in one[:2]), *binds) if not path.startswith("/")]:
        raise SpecificationError(f"{what} has the path {wrong[0]!r}, which is not absolute")
    return nodes, binds, tuple(map(str, edits.get("env") or ()))
