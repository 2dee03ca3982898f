"""What the mirror is asked for, and tells of copies, as values."""

import hashlib
import posixpath
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal, Self

# Of what stands for an owner, as of what stands for a list.
_HEX_DIGITS: Final = 24
# Of what stands for an owner in the tags of its recorded copies, where a list has its place too.
_TAG_DIGITS: Final = 16
# What a conversion takes.
MOST_FIRST: Final = 20_000
MOST_FIRST_BYTES: Final = 1 << 20
MOST_PATH_BYTES: Final = 4096


@dataclass(frozen=True, slots=True)
class Copying:
    """How far a copy is; the numbers are 0 as long as they are not known.

    Attributes:
        phase: ``waiting`` for its turn, ``copying``, ``converting``, or ``paused``: its registry limits how often it is
            asked.
        done_bytes: sent; of a conversion, those that it has worked through, of a number that is not known.
    """

    phase: Literal["waiting", "copying", "converting", "paused"]
    done_layers: int = 0
    layers: int = 0
    done_bytes: int = 0
    total_bytes: int = 0

    def __str__(self) -> str:
        if not self.layers:
            return self.phase
        layers = f"{self.phase}, {self.done_layers} of {self.layers} layers"
        if self.phase == "converting":
            return f"{layers}, {self.done_bytes / 1e6:.0f} MB worked through"
        return f"{layers}, {self.done_bytes / 1e6:.0f} of {self.total_bytes / 1e6:.0f} MB sent"


@dataclass(frozen=True, slots=True)
class Recorded:
    """What makes a converted copy a recorded one, which the starts of its owner alone get.

    Attributes:
        whose: stands for the owner (``whose``).
        first: the paths of the files that nodes fetch before all others, in this order.
    """

    whose: str
    first: tuple[str, ...]

    @classmethod
    def of(cls, owner: str, first: Iterable[str]) -> Self:
        """Of an owner, with the first of these files: each once, as many as a conversion takes."""
        kept: dict[str, None] = {}
        size_bytes = 0
        for one in first:
            if one in kept or not names_a_file(one):
                continue
            size_bytes += len(one.encode())
            if size_bytes > MOST_FIRST_BYTES or len(kept) == MOST_FIRST:
                break
            kept[one] = None
        return cls(whose(owner), tuple(kept))

    def __str__(self) -> str:
        """Stands for both."""
        return f"{self.whose} {hashlib.sha256(repr(self.first).encode()).hexdigest()[:_HEX_DIGITS]}"


def names_a_file(path: str) -> bool:
    """Whether it is an absolute path in its shortest form, which a conversion takes."""
    try:
        short = len(path.encode()) <= MOST_PATH_BYTES
    except UnicodeEncodeError:
        return False
    # Of two slashes at the beginning POSIX says that they may mean something else.
    shortest = len(path) > 1 and path[0] == "/" and path[1] != "/" and posixpath.normpath(path) == path
    return short and shortest and "\0" not in path


def whose(owner: str) -> str:
    """What stands for an owner in the private registry."""
    return hashlib.sha256(owner.encode()).hexdigest()[:_HEX_DIGITS]


def in_tags(whose: str) -> str:
    """What stands for an owner in the tags of its recorded copies, of what stands for it elsewhere."""
    return whose[:_TAG_DIGITS]


@dataclass(frozen=True, slots=True)
class Copied:
    """A finished copy.

    Attributes:
        digest: in the private registry.
        there: whether it was there already.
        architectures: those that it has, as images name them; none: not told.
    """

    digest: str
    there: bool
    architectures: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Converted:
    """A converted copy in the private registry.

    Attributes:
        digest: by which nodes pull it.
        booted: whether a sandbox has started from it; None: none was tried.
        why: why none has.
        architectures: those that it has, as images name them; none: not told.
    """

    digest: str
    booted: bool | None = None
    why: str = ""
    architectures: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Found:
    """What a tag of the private registry stands for.

    Attributes:
        digest: what runs.
        named: what the tag meant at its source when it was copied; empty: it is no copy's tag.
    """

    digest: str
    named: str
