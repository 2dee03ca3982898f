"""Why a registry did not give what it was asked for."""

from collections.abc import Mapping
from typing import Final, Literal, Self

from controlplane.errors import Code, Problem

# absent: it does not have the image; denied: or does not give it to us; limited: it wants to be asked later; away: it
# does not answer; broken: what it answered is truncated, too large, or of another digest.
Outcome = Literal["absent", "denied", "limited", "away", "broken"]
_CODES: Final[Mapping[Outcome, Code]] = {
    "absent": "image_not_found",
    "denied": "image_not_found",
    "limited": "image_pull_failed",
    "away": "image_pull_failed",
    "broken": "image_pull_failed",
}


class RegistryProblem(Problem):
    """A registry's refusal, or its silence.

    Attributes:
        outcome: which it was.
        pause_s: for how long the registry asked not to be asked again; None: it did not.
    """

    def __init__(self, outcome: Outcome, registry: str, detail: str, pause_s: float | None = None) -> None:
        super().__init__(_CODES[outcome], f"registry {registry}: {detail}", registry=registry)
        self.outcome: Outcome = outcome
        self.registry = registry
        self.pause_s = pause_s

    def again(self, more: str = "") -> Self:
        """The same problem, to be raised once more; ``more``: what is added to its detail."""
        copy = type(self)(self.outcome, self.registry, "", self.pause_s)
        copy.detail = self.detail + more
        copy.args = (f"{self.code}: {copy.detail}",)
        return copy


class TooLargeError(RegistryProblem):
    """A registry's answer has more bytes than were to be read."""
