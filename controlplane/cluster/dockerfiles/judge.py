"""Judges the instructions of a Dockerfile, one after the other. Pure."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Self

from controlplane.cluster.dockerfiles import environment
from controlplane.cluster.dockerfiles import flags as reading
from controlplane.cluster.dockerfiles.dockerfile import Document, Instruction, instructions
from controlplane.cluster.dockerfiles.mounts import joined, mount
from controlplane.cluster.dockerfiles.sources import File, Sources
from controlplane.cluster.dockerfiles.stages import FILES, OURS, Image, Stage, Stages, Step, images
from controlplane.cluster.dockerfiles.variables import declared, expanded
from controlplane.errors import Problem

# The engine's own limit of layers is 127.
MOST_STAGES: Final = 128
_STAGE: Final = re.compile(r"[a-z][a-z0-9_.-]*")
_SCRATCH: Final = "scratch"
_PLATFORMS: Final = frozenset({"$BUILDPLATFORM", "$TARGETPLATFORM", "${BUILDPLATFORM}", "${TARGETPLATFORM}"})
# Where a script inline is while it runs: in memory, so that no layer has a place for it.
_SCRIPTS: Final = "/dev/pipes"
_SCRIPT_MODE: Final = 0o755
# What is mounted of a stage or an image is copied here first: the builder would follow a link of theirs out of them.
_COPIED: Final = "/files"
_NEVER_TRIGGERS: Final = frozenset({"ONBUILD", "FROM", "MAINTAINER"})


@dataclass(frozen=True, slots=True)
class Base:
    """What an image says to those that are built on it.

    Attributes:
        values: its variables.
        shell: of its RUNs; empty: the usual one.
        triggers: its ONBUILDs.
    """

    values: Mapping[str, str]
    shell: Sequence[str] = ()
    triggers: Sequence[str] = ()

    @classmethod
    def of(cls, configuration: Mapping[str, Any]) -> Self:
        """From the configuration of an image."""
        config = configuration.get("config") or {}
        values = dict(str(one).partition("=")[::2] for one in config.get("Env") or ())
        return cls(values, config.get("Shell") or (), config.get("OnBuild") or ())


class Judge:
    """Judges one Dockerfile.

    Args:
        arguments: of the build.
        owner: whose the caches of its mounts are.
        platform: the machine's, ``linux/amd64``.
        bases: by the names of images; None: not known yet.
    """

    def __init__(
        self, arguments: Mapping[str, str], owner: str, platform: str, bases: Mapping[str, Base] | None
    ) -> None:
        self._arguments = arguments
        self._owner = owner
        self._platform = platform
        self._bases = bases
        system, _, machine = platform.partition("/")
        told = {"PLATFORM": platform, "OS": system, "ARCH": machine, "VARIANT": ""}
        self._known = {f"{side}{name}": value for side in ("TARGET", "BUILD") for name, value in told.items()}
        self._sources = Sources(self._place, self._value, self._text)
        self._copied = 0
        self.head: list[Step] = []
        self.stages = Stages()
        self.is_closed = False

    @property
    def files(self) -> Sequence[File]:
        """What is made for the build beside its context."""
        return self._sources.files

    def take(self, one: Instruction) -> None:
        """Judges the next instruction.

        Raises:
            Problem: invalid_argument, unsupported.
        """
        if one.word == "FROM":
            self._from(one)
        elif self.stages:
            self.stages[-1].steps += self._steps(one)
        elif one.word == "ARG":
            self._known |= declared(one, self._arguments, self._known)
            self.head.append((str(one),))
        else:
            raise one.invalid(f"{one.word} stands before the first FROM")

    def _steps(self, one: Instruction) -> Sequence[Step]:
        match one.word:
            case "COPY" | "ADD":
                return self._sources.steps(one)
            case "RUN":
                return [self._run(one)]
            case "ONBUILD":
                trigger = _parsed(one, one.rest)
                self._check_trigger(one, str(trigger))
                self.stages[-1].triggers.append(trigger)
                return [(f"ONBUILD {trigger}",)]
            case _:
                self._remember(one)
        return [(str(one),)]

    def _remember(self, one: Instruction) -> None:
        """What an instruction changes for later ones."""
        if one.word in ("ENV", "ARG"):
            self.stages[-1].settings.append(one)
        elif one.word == "SHELL":
            self.stages[-1].shell = _shell(one)

    def _from(self, one: Instruction) -> None:
        flags, rest = reading.read(one)
        for name, value in flags:
            if name != "platform" or not (value in _PLATFORMS or value == self._platform):
                raise one.unsupported(f"--{name}={value}", f"images are built for {self._platform} alone here")
        words = rest.split()
        if len(words) not in (1, 3) or (len(words) == 3 and words[1].lower() != "as"):
            raise one.invalid("FROM is IMAGE, or IMAGE AS NAME")
        if len(self.stages) >= MOST_STAGES:
            raise one.unsupported("too many stages", f"a Dockerfile has at most {MOST_STAGES} here")
        image, said = expanded(one, words[0], self._known), _name(one, words[2].lower()) if words[2:] else ""
        below = self.stages.called(image)
        base = "" if below or image == _SCRATCH else image
        stage = self.stages.begun(said, below, base)
        source = below.name if below else Image(base) if base else _SCRATCH
        stage.steps.append(("FROM ", source, f" AS {stage.name}"))
        if below is not None:
            for trigger in below.triggers:
                self._remember(trigger)
        elif base and self._bases is not None:
            self._of_base(one, stage, self._bases[base])

    def _of_base(self, one: Instruction, stage: Stage, base: Base) -> None:
        stage.shell = list(base.shell) or stage.shell
        for trigger in base.triggers:
            self._check_trigger(one, trigger)
            self._remember(_parsed(one, trigger))

    def _check_trigger(self, one: Instruction, text: str) -> None:
        """Refuses a trigger that the builder could not run as it stands, by itself."""
        found = _parsed(one, text)
        apart = Judge({}, self._owner, self._platform, {})
        if found.word not in _NEVER_TRIGGERS and not found.documents:
            apart.take(Instruction("FROM", _SCRATCH, one.line))
            apart.take(found)
            steps = apart.stages[-1].steps[1:]
            plain = ["".join(part for part in step if isinstance(part, str)) for step in steps]
            if plain == [text] and not images(steps) and not apart.files and not apart.is_closed:
                return
        instead = "write it into the Dockerfiles that need it: a trigger names no image, address, cache or document"
        raise one.unsupported(f"the trigger ONBUILD {text[:100]}", instead)

    def _run(self, one: Instruction) -> Step:
        flags, rest = reading.read(one)
        parts: list[str | Image] = ["RUN"]
        for name, value in flags:
            if name == "mount":
                parts += self._mount(one, value or "")
            elif (name, value) == ("network", "none"):
                # The builder does not know it: without a policy it is so for all.
                self.is_closed = True
            elif (name, value) not in (("network", "default"), ("security", "sandbox")):
                instead = "RUN has no privileges and no network of its own here"
                raise one.unsupported(f"RUN --{name}={value}", instead)
        if not rest:
            raise one.invalid("RUN says nothing")
        return (*parts, *(self._script(one, rest) if one.documents else (f" {rest}",)))

    def _mount(self, one: Instruction, options: str) -> Step:
        told = mount(one, options, self._owner)
        place = self._place(one, told.pop("from")) if "from" in told else None
        if place is None:
            return (f" --mount={joined(told)}",)
        inner = told.pop("source", "").strip("/")
        if inner not in ("", "."):
            name = f"{OURS}files-{self._copied}"
            self._copied += 1
            copy: Step = ("COPY --from=", place, f" {json.dumps([f'/{inner}', _COPIED])}")
            self.stages[-1].before += [(f"FROM {_SCRATCH} AS {name}",), copy]
            place, told = name, {**told, "source": _COPIED}
        return (f" --mount={joined(told)},from=", place)

    def _script(self, one: Instruction, rest: str) -> Step:
        """A RUN with documents inline: a list for its stage's shell, which reads such documents itself."""
        first = one.documents[0]
        if rest == first.word and first.text.startswith("#!"):
            path = self._sources.made(one, first.name, first.text.encode(), _SCRIPT_MODE)
            there = f"{_SCRIPTS}/{first.name}"
            return (f" --mount=type=bind,source=/{path},target={there},from=", FILES, f" {json.dumps([there])}")
        if rest == first.word:
            lines = [line.lstrip("\t") if first.without_tabs else line for line in first.lines]
        else:
            lines = [rest, *(line for document in one.documents for line in (*document.lines, document.last)), ""]
        return (f" {json.dumps([*self.stages[-1].shell, chr(10).join(lines)])}",)

    def _place(self, one: Instruction, source: str) -> str | Image:
        """What a step reads: an earlier stage, or an image."""
        if "$" in source or not source:
            raise one.unsupported(f"the source {source[:100]!r}", "name an image or a stage without variables")
        if (stage := self.stages.earlier(source)) is not None:
            return stage.name
        # The builder would look for an image of this name among all that the engine has.
        if source.lower() in (self.stages[-1].said, self.stages[-1].name):
            raise one.invalid(f"{source[:100]!r} is this stage itself: a step reads earlier ones")
        return Image(source)

    def _value(self, one: Instruction, word: str) -> str | None:
        values = self._values()
        return None if values is None else environment.expanded(one, word, values)

    def _text(self, one: Instruction, document: Document) -> str:
        values = self._values() if not document.is_literal and re.search(r"[$\\]", document.text) else None
        if values is None:
            return document.text
        return environment.expanded(one, document.text, values, with_quotes=False)

    def _values(self) -> environment.Values | None:
        stage = self.stages[-1]
        if stage.base and self._bases is None:
            return None
        below = self._bases[stage.base].values if stage.base and self._bases is not None else {}
        return environment.at(below, stage.settings, self._arguments, self._known)


def _parsed(one: Instruction, text: str) -> Instruction:
    """The instruction of a trigger."""
    try:
        found = instructions(text)
    except Problem as problem:
        raise one.invalid(f"ONBUILD {text[:100]!r}: {problem.detail}") from problem
    if len(found) != 1:
        raise one.invalid(f"ONBUILD {text[:100]!r} is no instruction")
    return replace(found[0], line=one.line)


def _shell(one: Instruction) -> list[str]:
    try:
        words = json.loads(one.rest)
    except ValueError:
        words = None
    if not isinstance(words, list) or not words or not all(isinstance(word, str) for word in words):
        raise one.invalid("SHELL is a list of words, in JSON")
    return words


def _name(one: Instruction, name: str) -> str:
    if not _STAGE.fullmatch(name) or name == _SCRATCH:
        raise one.invalid(f"a stage cannot have the name {name[:100]!r}")
    return name
