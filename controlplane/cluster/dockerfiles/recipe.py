"""What a Dockerfile reads besides its context, and the one that the builder gets instead. Pure.

Names of images are given to the builder in no form: it finds any image of the engine by a part of its id, so what it
is told are ids that the caller has looked up, for an owner that may have them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from controlplane.cluster.dockerfiles.dockerfile import Instruction, instructions
from controlplane.cluster.dockerfiles.judge import Base, Judge
from controlplane.cluster.dockerfiles.sources import File
from controlplane.cluster.dockerfiles.stages import Image, Stages, Step, images


@dataclass(frozen=True, slots=True)
class Recipe:
    """A Dockerfile, judged.

    Attributes:
        head: steps before the first stage.
        stages: all of them.
        target: the stage that is wanted, as the builder knows it; empty: the last one.
        files: what is made for it beside the context.
        is_closed: a RUN is to have no network, whatever the others have.
    """

    head: Sequence[Step]
    stages: Stages
    target: str
    files: Sequence[File] = ()
    is_closed: bool = False

    @property
    def images(self) -> Sequence[str]:
        """The names of the images that it reads, in order, each once."""
        return images(self._steps())

    @property
    def addresses(self) -> Sequence[str]:
        """Those of the files that are fetched."""
        return [file.address for file in self.files if file.address]

    def pinned(self, ids: Mapping[str, str], behind_from: Sequence[str] = ()) -> str:
        """The Dockerfile for the builder.

        Args:
            ids: of its images, by name; that of ``FILES`` too, if it has files.
            behind_from: lines that each stage begins with.
        """
        return "".join(f"{line}\n" for line in self._lines(ids, behind_from))

    def _steps(self) -> list[Step]:
        return [*self.head, *(step for stage in self.stages for step in (*stage.before, *stage.steps))]

    def _lines(self, ids: Mapping[str, str], behind_from: Sequence[str]) -> list[str]:
        lines: list[str] = []
        for step in self._steps():
            lines.append("".join(ids[part.name] if isinstance(part, Image) else part for part in step))
            if lines[-1].startswith("FROM "):
                lines += behind_from
        return lines


def recipe(
    text: str,
    arguments: Mapping[str, str],
    target: str,
    *,
    owner: str,
    platform: str,
    bases: Mapping[str, Base] | None = None,
) -> Recipe:
    """Judges a Dockerfile.

    Args:
        text: of it.
        arguments: of the build.
        target: the stage that is wanted; empty: the last one.
        owner: whose the caches of its mounts are.
        platform: the machine's, ``linux/amd64``.
        bases: what the engine says of the images that it reads; None: nobody has looked yet, so it is good for the
            names of these alone.

    Raises:
        Problem: invalid_argument; unsupported: it has what the builder here cannot do or must not; payload_too_large.
    """
    lines = instructions(text)
    judge = Judge(arguments, owner, platform, bases)
    for one in lines:
        judge.take(one)
    last = lines[-1] if lines else Instruction("FROM", "", 1)
    if not judge.stages:
        raise last.invalid("there is no FROM")
    wanted = _target(last, judge.stages, target)
    return Recipe(judge.head, judge.stages, wanted, tuple(judge.files), judge.is_closed)


def _target(last: Instruction, stages: Stages, target: str) -> str:
    if not target:
        return ""
    found = stages.called(target)
    if found is None and target.isdecimal() and target.isascii() and int(target) < len(stages):
        found = stages[int(target)]
    if found is None:
        named = ", ".join(filter(None, (one.said for one in stages))) or "none has a name"
        raise last.invalid(f"there is no stage {target[:100]!r}; the stages: {named}")
    return found.name
