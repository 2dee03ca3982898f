"""What the mirror tells of copies, as values."""

from dataclasses import dataclass
from typing import Literal


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
