"""The flags and the words of an instruction. Pure."""

import json
import re
from collections.abc import Sequence
from typing import Final

from controlplane.cluster.dockerfiles.dockerfile import Instruction

_FLAG: Final = re.compile(r"--(?P<name>[a-z][a-z-]*)(?:=(?P<value>[^\s\"'\\]*))?")
Flags = Sequence[tuple[str, str | None]]


def read(one: Instruction) -> tuple[list[tuple[str, str | None]], str]:
    """The flags in front of an instruction's words, and these.

    Raises:
        Problem: invalid_argument.
    """
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


def joined(word: str, flags: Flags, rest: str) -> str:
    """An instruction of these parts."""
    told = [f"--{name}" if value is None else f"--{name}={value}" for name, value in flags]
    return " ".join([word, *told, *filter(None, [rest])])


def words(rest: str) -> tuple[list[str], bool]:
    """The words of a COPY or ADD, and whether they are a list in JSON."""
    try:
        told = json.loads(rest) if rest.startswith("[") else None
    except ValueError:
        told = None
    if isinstance(told, list) and all(isinstance(word, str) for word in told):
        return told, True
    return rest.split(), False


def written(told: Sequence[str], *, as_list: bool) -> str:
    """The words as the instruction has them."""
    return json.dumps(list(told)) if as_list else " ".join(told)
