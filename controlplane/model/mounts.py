"""``Mount``: what a sandbox has at a folder besides its image: an operator's data set, or scratch that a group shares.

Pure. Paths are refused unless they are written in their shortest form: a path that is rewritten could be another one.
"""

import hashlib
import re
from collections.abc import Mapping
from itertools import pairwise
from typing import Annotated, Final, Self

from pydantic import Field, StringConstraints, model_validator

from controlplane.model.base import GIB, MIB, Closed

MOST_MOUNTS: Final = 16
MOST_PATH_CHARS: Final = 255
DATASET_NAME: Final = r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"
# As the name of a group, which a scratch often has.
SCRATCH_NAME: Final = r"[A-Za-z0-9]([A-Za-z0-9._-]{0,98}[A-Za-z0-9])?"
DEFAULT_SCRATCH_BYTES: Final = GIB
MAX_SCRATCH_BYTES: Final = 64 * GIB

# A colon separates the parts of a mount to engines; white space and quotes are left out with it.
_PART: Final = re.compile(r"[A-Za-z0-9._@+=,~-]+")
_CHARACTERS: Final = "in letters, digits and ._@+=,~-"
# Nothing is mounted there or below: the kernel's own, and what the platform itself has in a sandbox.
_TAKEN: Final = ("/proc", "/sys", "/dev", "/.rollbox")
# Runtimes mount files into these, so nothing may cover them; below them is free.
_NEEDED: Final = ("/etc", "/run", "/var/run")
# Files that runtimes mount.
_FILES: Final = ("/etc/hosts", "/etc/hostname", "/etc/resolv.conf", "/run/.containerenv")


class Mount(Closed):
    """What is mounted at one path: a data set or a scratch.

    Attributes:
        dataset: the name of a data set of the installation, which is read only.
        scratch: the name of a folder that all sandboxes of one owner and one group share that name it. It begins empty
            and goes with the last of them.
        size_bytes: the most that a scratch holds; 0: ``DEFAULT_SCRATCH_BYTES``.
    """

    dataset: Annotated[str, StringConstraints(pattern=rf"^({DATASET_NAME})?$")] = Field(
        default="", exclude_if=lambda name: not name
    )
    scratch: Annotated[str, StringConstraints(pattern=rf"^({SCRATCH_NAME})?$")] = Field(
        default="", exclude_if=lambda name: not name
    )
    size_bytes: int = Field(default=0, ge=0, le=MAX_SCRATCH_BYTES, exclude_if=lambda size: not size)

    @model_validator(mode="after")
    def _one(self) -> Self:
        if bool(self.dataset) == bool(self.scratch):
            raise ValueError("give either dataset or scratch, by name")
        if self.dataset and self.size_bytes:
            raise ValueError("size_bytes is for a scratch: a data set has its own size")
        if self.size_bytes and self.size_bytes < MIB:
            raise ValueError(f"size_bytes {self.size_bytes} is less than {MIB}")
        return self

    @property
    def words(self) -> str:
        """What it is, for people."""
        return f"data set {self.dataset}" if self.dataset else f"scratch {self.scratch}"

    @property
    def scratch_bytes(self) -> int:
        """The most that the scratch holds."""
        return self.size_bytes or DEFAULT_SCRATCH_BYTES


Mounts = Mapping[str, Mount]


def checked(mounts: dict[str, Mount]) -> dict[str, Mount]:
    """The mounts of one sandbox by path, as they were given.

    Raises:
        ValueError: a path cannot be mounted at, or two contradict one another; the message names them.
    """
    if len(mounts) > MOST_MOUNTS:
        raise ValueError(f"{len(mounts)} mounts are more than {MOST_MOUNTS}")
    for path in mounts:
        if trouble := path_trouble(path):
            raise ValueError(f"{path[:128]!r} {trouble}")
    # Sorted by their parts, so that what is in a folder comes right after it.
    ordered = sorted(mounts, key=lambda path: path.split("/"))
    for outer, inner in pairwise(ordered):
        if _within(inner, outer):
            raise ValueError(f"{inner!r} is in {outer!r}, and mounts may not be in one another")
    _one_size(mounts)
    return mounts


def path_trouble(path: str) -> str:
    """Why nothing may be mounted at a path; empty: something may."""
    parts = path[1:].split("/")
    shortest = all(_PART.fullmatch(part) and part not in (".", "..") for part in parts)
    taken = next((one for one in _TAKEN if _within(path, one)), "")
    reasons = (
        (not path.startswith("/"), "must be an absolute path"),
        (len(path) > MOST_PATH_CHARS, f"has more than {MOST_PATH_CHARS} characters"),
        (path == "/", "is the root, which is the image's: give a folder in it"),
        (not shortest, f"must be written without '.', '..' or a slash at the end, {_CHARACTERS}"),
        (bool(taken), f"is in {taken}, which belongs to the system"),
        (path in _NEEDED or any(_within(path, one) for one in _FILES), "has files that every container gets"),
    )
    return next((why for holds, why in reasons if holds), "")


def scratch_key(owner: str, group: str, name: str) -> str:
    """What names a scratch on its machine: 32 hex digits, another for each owner, group and name."""
    # A length before each part: no two triples give the same text.
    text = "".join(f"{len(part)}:{part}" for part in (owner, group, name))
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _within(path: str, folder: str) -> bool:
    return path == folder or path.startswith(f"{folder}/")


def _one_size(mounts: Mounts) -> None:
    sizes: dict[str, int] = {}
    for mount in mounts.values():
        if mount.scratch and sizes.setdefault(mount.scratch, mount.scratch_bytes) != mount.scratch_bytes:
            raise ValueError(f"scratch {mount.scratch!r} has two sizes: give it one")
