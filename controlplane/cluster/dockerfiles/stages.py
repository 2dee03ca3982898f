"""The stages of a Dockerfile while it is judged, and the steps that the builder gets of them. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from controlplane.cluster.dockerfiles.dockerfile import Instruction
from controlplane.cluster.dockerfiles.environment import STAGE

SHELL: Final = ("/bin/sh", "-c")
# Stages that are made for a Dockerfile have such names, and those that have none in it.
OURS: Final = "rollbox-"


@dataclass(frozen=True, slots=True)
class Image:
    """An image in a step, in whose place its id comes.

    Attributes:
        name: as the Dockerfile has it.
    """

    name: str


# What is made for the build alone: documents inline, and what was fetched.
FILES: Final = Image("")
Step = tuple[str | Image, ...]


@dataclass(slots=True)
class Stage:
    """One stage.

    Attributes:
        name: what the builder is told.
        said: what the Dockerfile calls it; empty: nothing.
        base: the image at the bottom; empty: none.
        settings: what ``environment.at`` takes.
        shell: as it is at the line that is judged.
        triggers: its ONBUILDs.
        before: steps of stages that are made for it.
        steps: its own, FROM first.
    """

    name: str
    said: str
    base: str
    settings: list[Instruction] = field(default_factory=list)
    shell: list[str] = field(default_factory=lambda: list(SHELL))
    triggers: list[Instruction] = field(default_factory=list)
    before: list[Step] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)


class Stages(list[Stage]):
    """Those that have begun, in order."""

    def called(self, source: str) -> Stage | None:
        """The last stage that has this name."""
        return next((one for one in reversed(self) if one.said == source.lower()), None)

    def earlier(self, source: str) -> Stage | None:
        """The stage before the current one that a step means by a name or a number."""
        past = Stages(self[:-1])
        if source.isdecimal() and source.isascii() and int(source) < len(past):
            return past[int(source)]
        return past.called(source)

    def begun(self, said: str, below: Stage | None, image: str) -> Stage:
        """A new one on top of another, or of an image (empty: of nothing)."""
        taken = not said or said.startswith(OURS) or self.called(said) is not None
        made = Stage(f"{OURS}{len(self)}" if taken else said, said, image)
        if below is not None:
            made.base, made.shell = below.base, list(below.shell)
            made.settings = [*below.settings, STAGE]
        self.append(made)
        return made


def images(steps: Sequence[Step]) -> list[str]:
    """The names of the images that steps read, each once."""
    return list(dict.fromkeys(part.name for step in steps for part in step if isinstance(part, Image) and part.name))
