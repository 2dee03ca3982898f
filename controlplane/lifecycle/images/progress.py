"""``ConversionProgress``: how far a conversion is, as those who ask for it are told."""

from dataclasses import dataclass
from typing import Final, Literal

# Of a conversion, of which nobody is told when it changes.
LOOK_EVERY_S: Final = 0.5


@dataclass(frozen=True, slots=True)
class ConversionProgress:
    """How far a conversion is.

    Attributes:
        state: ``copying`` until the plain copy is there; ``recording`` while a command runs whose files come first;
            ``offered``: starts are given it.
        text: how far it is in that, for people.
        digest: what the name means, once it is offered.
        ran: the digest of the converted copy.
        files: how many the command has opened, once that is known.
        more: it has opened more, which do not come first.
        run_failed: how the command has failed; empty: it has not.
    """

    state: Literal["copying", "converting", "recording", "offered"]
    text: str = ""
    digest: str = ""
    ran: str = ""
    files: int = 0
    more: bool = False
    run_failed: str = ""
