"""What a Dockerfile reads besides its context, and the one that the builder gets instead. Pure.

Names of images are given to the builder in no form: it finds any image of the engine by a part of its id, so what it
is told are ids that the caller has looked up, for an owner that may have them.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from controlplane.cluster.dockerfiles.dockerfile import Instruction, instructions, is_document
from controlplane.cluster.dockerfiles.mounts import mount
from controlplane.cluster.dockerfiles.variables import declared, expanded

# The engine's own limit of layers is 127.
MOST_STAGES: Final = 128
_FLAG: Final = re.compile(r"--(?P<name>[a-z][a-z-]*)(?:=(?P<value>[^\s\"'\\]*))?")
_STAGE: Final = re.compile(r"[a-z][a-z0-9_.-]*")
_SCRATCH: Final = "scratch"
SHELL: Final = ("/bin/sh", "-c")
_PLATFORMS: Final = frozenset({"$BUILDPLATFORM", "$TARGETPLATFORM", "${BUILDPLATFORM}", "${TARGETPLATFORM}"})
# In a form that the builder would still have to interpret a source says nothing of where it leads.
_OPAQUE: Final = re.compile(r"[\"'\\$]|://|^git@|^github\.com/", re.I)


@dataclass(frozen=True, slots=True)
class Step:
    """An instruction for the builder.

    Attributes:
        text: all of it, or what stands before the id of the image that it reads.
        image: the name of that; empty: it reads none.
        rest: what stands behind.
    """

    text: str
    image: str = ""
    rest: str = ""


@dataclass(frozen=True, slots=True)
class Recipe:
    """A Dockerfile, judged.

    Attributes:
        steps: what the builder gets.
        stages: names of its stages, in order; empty: without one.
        has_documents: a RUN has one inline, which is given to the usual shell unless a SHELL says another one.
        is_closed: a RUN is to have no network, whatever the others have.
    """

    steps: Sequence[Step]
    stages: Sequence[str]
    has_documents: bool = False
    is_closed: bool = False

    @property
    def images(self) -> Sequence[str]:
        """The images that it reads, each once."""
        return list(dict.fromkeys(step.image for step in self.steps if step.image))

    def pinned(self, ids: Mapping[str, str]) -> str:
        """The Dockerfile with ids of images in the place of names."""
        return "".join(f"{step.text}{ids[step.image] if step.image else ''}{step.rest}\n" for step in self.steps)


def recipe(text: str, arguments: Mapping[str, str], target: str, *, owner: str, platform: str) -> Recipe:
    """Judges a Dockerfile.

    Args:
        text: of it.
        arguments: of the build.
        target: the stage that is wanted; empty: the last one.
        owner: whose the caches of its mounts are.
        platform: the machine's, ``linux/amd64``.

    Raises:
        Problem: invalid_argument; unsupported: it has what the builder here cannot do or must not; payload_too_large.
    """
    return _Judge(arguments, owner, platform).recipe(instructions(text), target)


class _Judge:
    def __init__(self, arguments: Mapping[str, str], owner: str, platform: str) -> None:
        self._arguments = arguments
        self._known: dict[str, str] = {}
        self._owner = owner
        self._platform = platform
        self._stages: list[str] = []
        self._shells: list[list[str]] = []  # of each stage, as it is at the line that is judged
        self.has_documents = self.is_closed = False

    def recipe(self, lines: Sequence[Instruction], target: str) -> Recipe:
        steps = [self._step(one) for one in lines]
        last = lines[-1] if lines else Instruction("FROM", "", 1)
        if not self._stages:
            raise last.invalid("there is no FROM")
        if target and target.lower() not in self._stages and not (target.isdigit() and int(target) < len(self._stages)):
            named = ", ".join(filter(None, self._stages)) or "none has a name"
            raise last.invalid(f"there is no stage {target[:100]!r}; the stages: {named}")
        return Recipe(steps, tuple(self._stages), self.has_documents, self.is_closed)

    def _step(self, one: Instruction) -> Step:
        if not self._stages and one.word not in ("ARG", "FROM"):
            raise one.invalid(f"{one.word} stands before the first FROM")
        judge = {"FROM": self._from, "COPY": self._copy, "ADD": self._add, "RUN": self._run, "ARG": self._arg}
        judge["SHELL"] = self._shell
        if one.word == "ONBUILD":
            raise one.unsupported("ONBUILD", "write what is to happen into the Dockerfiles that need it")
        return judge.get(one.word, lambda plain: Step(str(plain)))(one)

    def _arg(self, one: Instruction) -> Step:
        if not self._stages:
            self._known |= declared(one, self._arguments, self._known)
        return Step(str(one))

    def _from(self, one: Instruction) -> Step:
        flags, rest = _flags(one)
        for name, value in flags:
            if name != "platform" or not (value in _PLATFORMS or value == self._platform):
                raise one.unsupported(f"--{name}={value}", f"images are built for {self._platform} alone here")
        words = rest.split()
        if len(words) not in (1, 3) or (len(words) == 3 and words[1].lower() != "as"):
            raise one.invalid("FROM is IMAGE, or IMAGE AS NAME")
        if len(self._stages) >= MOST_STAGES:
            raise one.unsupported("too many stages", f"a Dockerfile has at most {MOST_STAGES} here")
        image = expanded(one, words[0], self._known)
        step = self._source(one, "FROM ", image, f" AS {words[2].lower()}" if words[2:] else "", indexed=False)
        below = self._stages.index(image.lower()) if image.lower() in self._stages else None
        self._shells.append(list(SHELL if below is None else self._shells[below]))
        self._stages.append(_stage(one, words[2].lower()) if words[2:] else "")
        return step

    def _copy(self, one: Instruction) -> Step:
        flags, rest = _flags(one)
        return self._with_source(one, [(name, value) for name, value in flags if name != "link"], rest)

    def _add(self, one: Instruction) -> Step:
        flags, rest = _flags(one)
        if any(name == "from" for name, _ in flags):
            raise one.invalid("ADD has no --from")
        _check_sources(one, rest)
        return Step(_joined("ADD", [(name, value) for name, value in flags if name != "link"], rest))

    def _with_source(self, one: Instruction, flags: Sequence[tuple[str, str | None]], rest: str) -> Step:
        sources = [value or "" for name, value in flags if name == "from"]
        if len(sources) > 1:
            raise one.invalid("it has --from twice")
        if not sources:
            return Step(_joined(one.word, flags, rest))
        others = [flag for flag in flags if flag[0] != "from"]
        return self._source(one, f"{_joined(one.word, others, '--from=')}", sources[0], f" {rest}", indexed=True)

    def _run(self, one: Instruction) -> Step:
        flags, rest = _flags(one)
        kept: list[tuple[str, str | None]] = []
        for name, value in flags:
            if name == "mount":
                kept.append((name, mount(one, value or "", self._owner)))
            elif (name, value) == ("network", "none"):
                # The builder does not know it: without a policy it is so for all.
                self.is_closed = True
            elif (name, value) not in (("network", "default"), ("security", "sandbox")):
                instead = "RUN has no privileges and no network of its own here"
                raise one.unsupported(f"RUN --{name}={value}", instead)
        if not rest:
            raise one.invalid("RUN says nothing")
        return Step(_joined("RUN", kept, self._script(one, rest) if one.documents else rest))

    def _script(self, one: Instruction, rest: str) -> str:
        """A RUN with documents inline as a list for its stage's shell, which reads such documents itself."""
        self.has_documents = True
        text = "\n".join([rest, *one.documents, ""])
        if is_document(rest):
            # The document is the script. Without its last line, and where it says so without the tabs before each.
            lines = one.documents[0].split("\n")[:-1]
            text = "\n".join([line.lstrip("\t") for line in lines] if "<<-" in rest else lines)
            if text.startswith("#!"):
                instead = "name it in the RUN, as in RUN python3 <<EOF"
                raise one.unsupported("a document inline with an interpreter of its own", instead)
        return json.dumps([*self._shells[-1], text])

    def _shell(self, one: Instruction) -> Step:
        try:
            words = json.loads(one.rest)
        except ValueError:
            words = None
        if not isinstance(words, list) or not words or not all(isinstance(word, str) for word in words):
            raise one.invalid("SHELL is a list of words, in JSON")
        self._shells[-1] = words
        return Step(str(one))

    def _source(self, one: Instruction, before: str, source: str, rest: str, *, indexed: bool) -> Step:
        """A step that reads a stage, or an image."""
        if "$" in source or not source:
            raise one.unsupported(f"the source {source[:100]!r}", "name an image or a stage without variables")
        if source.lower() in self._stages or (indexed and source.isdigit() and int(source) < len(self._stages)):
            return Step(f"{before}{source.lower()}{rest}")
        if source == _SCRATCH and not indexed:
            return Step(f"{before}{_SCRATCH}{rest}")
        return Step(before, source, rest)


def _check_sources(one: Instruction, rest: str) -> None:
    """Refuses an ADD that the builder would fetch itself, with the network of the machine."""
    try:
        words = [str(word) for word in json.loads(rest)] if rest.startswith("[") else rest.split()
    except ValueError:
        words = rest.split()
    for word in words[:-1]:
        if _OPAQUE.search(word):
            instead = (
                "have it in the context, or fetch it in a RUN; a local source is named without quotes and variables"
            )
            raise one.unsupported(f"ADD of {word[:100]!r}", instead)


def _flags(one: Instruction) -> tuple[list[tuple[str, str | None]], str]:
    """The flags in front of an instruction's words, and these."""
    flags: list[tuple[str, str | None]] = []
    rest = one.rest
    while rest.startswith("--"):
        word, *more = re.split(r"[ \t]+", rest, maxsplit=1)
        if word == "--":
            break
        found = _FLAG.fullmatch(word)
        if found is None:
            raise one.invalid(f"the flag {word[:100]!r} is written in a way that is not read here: without quotes")
        flags.append((found["name"], found["value"]))
        rest = "".join(more)
    return flags, rest


def _joined(word: str, flags: Sequence[tuple[str, str | None]], rest: str) -> str:
    told = [f"--{name}" if value is None else f"--{name}={value}" for name, value in flags]
    return " ".join([*filter(None, [word]), *told, rest])


def _stage(one: Instruction, name: str) -> str:
    if not _STAGE.fullmatch(name) or name == _SCRATCH:
        raise one.invalid(f"a stage cannot have the name {name[:100]!r}")
    return name
