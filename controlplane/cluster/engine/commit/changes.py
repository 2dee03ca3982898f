"""Which folders of an engine's storage have what a sandbox has changed."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from controlplane.errors import Problem

Inspection = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Changes:
    """What becomes a layer.

    Attributes:
        uppers: the folder with what the sandbox has changed, and those of layers of its image that are a part of it.
        lowers: the folders of the layers below that.
        mounts: absolute paths.
        volumes: those of ``mounts`` that are folders which the image declares as ``VOLUME``.
        layers: how many layers of the image are in ``uppers``.
    """

    uppers: Sequence[str]
    lowers: Sequence[str]
    mounts: Sequence[str]
    volumes: Sequence[str] = ()
    layers: int = 0

    def squashed(self, sandbox_id: str, base: Inspection) -> "Changes":
        """With the topmost layer of the image, wherever the engine has that: it may have one of its own above.

        Args:
            sandbox_id: for the refusal.
            base: the image, as an inspection tells it.

        Raises:
            Problem: unsupported: the engine does not say where that layer is.
        """
        own = str(((base.get("GraphDriver") or {}).get("Data") or {}).get("UpperDir") or "")
        real = os.path.realpath(own)
        at = next((at for at, one in enumerate(self.lowers) if own and os.path.realpath(one) == real), None)
        if at is None:
            detail = f"the engine does not say which folder has the top layer of the image of {sandbox_id}"
            raise Problem("unsupported", detail, value="storage driver overlay")
        return replace(self, uppers=(*self.uppers, real), lowers=self.lowers[at + 1 :], layers=1)


def changes_of(sandbox_id: str, seen: Inspection) -> Changes:
    """What a sandbox has changed.

    Args:
        sandbox_id: which one.
        seen: its container, as an inspection tells it.

    Raises:
        Problem: unsupported: the engine keeps it in a way that cannot be read here.
    """
    data = (seen.get("GraphDriver") or {}).get("Data") or {}
    upper, lowers = str(data.get("UpperDir") or ""), str(data.get("LowerDir") or "").split(":")
    if not upper or not os.access(upper, os.R_OK | os.X_OK):
        driver = (seen.get("GraphDriver") or {}).get("Name")
        detail = f"the engine's storage ({driver}) has no folder with the changes of {sandbox_id} that can be read here"
        raise Problem("unsupported", f"{detail}: it takes the driver overlay, and root", value="storage driver overlay")
    table = _table(seen)
    mounts = [one for one in seen.get("Mounts") or () if not _detached(one, table)]
    volumes = [_place(one) for one in mounts if one.get("Type") == "volume"]
    return Changes([upper], [one for one in lowers if one], [_place(one) for one in mounts], volumes)


def _place(mount: Mapping[str, Any]) -> str:
    return str(mount.get("Destination"))


def _detached(mount: Mapping[str, Any], table: str) -> bool:
    """Whether the sidecar has detached it: the folder is a part of the root file system then."""
    return mount.get("Type") == "volume" and bool(table) and f"/{mount.get('Name')}/" not in table


def _table(seen: Inspection) -> str:
    """What is mounted in a container; empty if that cannot be read."""
    try:
        return Path(f"/proc/{seen['State']['Pid']}/mountinfo").read_text(errors="replace")
    except (OSError, KeyError):
        return ""
