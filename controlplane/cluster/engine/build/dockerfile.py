"""The lines of a Dockerfile, each instruction on one: what is judged is what the builder is given, word for word. Pure.

The builder reads the engine's images and the machine's network with the engine's own rights, so each source that a
Dockerfile names has to be known before. Two readers of one text may differ; so the builder never gets the text, but
these lines, in which nothing is left to interpret: no continuations, comments, directives and documents inline.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from controlplane.errors import Problem

MOST_BYTES: Final = 256 << 10
MOST_INSTRUCTIONS: Final = 1000
INSTRUCTIONS: Final = frozenset(
    {"ADD", "ARG", "CMD", "COPY", "ENTRYPOINT", "ENV", "EXPOSE", "FROM", "HEALTHCHECK", "LABEL", "MAINTAINER"}
    | {"ONBUILD", "RUN", "SHELL", "STOPSIGNAL", "USER", "VOLUME", "WORKDIR"}
)
_DIRECTIVE: Final = re.compile(r"#\s*([a-zA-Z]+)\s*=\s*(\S.*?)\s*")
# A word that begins a document inline; `<<<` begins none.
_INLINE: Final = re.compile(r"\d*<<-?[\"']?[A-Za-z_]\S*")
_WITH_INLINE: Final = frozenset({"RUN", "COPY", "ADD"})


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction.

    Attributes:
        word: its name, in capitals.
        rest: what follows, on one line.
        line: where it begins, from 1.
    """

    word: str
    rest: str
    line: int

    def __str__(self) -> str:
        return f"{self.word} {self.rest}"

    def invalid(self, why: str) -> Problem:
        """The refusal of a mistake in it."""
        return Problem("invalid_argument", f"Dockerfile, line {self.line}: {why}", field="dockerfile", line=self.line)

    def unsupported(self, what: str, instead: str) -> Problem:
        """The refusal of what the builder here cannot do, or must not."""
        detail = f"Dockerfile, line {self.line}: {what}: {instead}"
        return Problem("unsupported", detail, option="dockerfile", line=self.line)


def instructions(text: str) -> list[Instruction]:
    """The instructions of a Dockerfile, in order.

    Raises:
        Problem: invalid_argument; unsupported: a document inline; payload_too_large.
    """
    if len(text.encode()) > MOST_BYTES:
        raise Problem("payload_too_large", f"a Dockerfile has at most {MOST_BYTES} bytes here", field="dockerfile")
    found = [_instruction(line, words) for line, words in _logical(text)]
    if len(found) > MOST_INSTRUCTIONS:
        detail = f"a Dockerfile has at most {MOST_INSTRUCTIONS} instructions here, this one has {len(found)}"
        raise Problem("payload_too_large", detail, field="dockerfile")
    return found


def _logical(text: str) -> Iterator[tuple[int, str]]:
    """The lines as continuations join them, without comments, each with the number of its first one."""
    directives, begun, joined = True, 0, ""
    for number, line in enumerate(text.removeprefix("\ufeff").replace("\r\n", "\n").split("\n"), 1):
        bare = line.lstrip(" \t")
        if bare.startswith("#"):
            found = _DIRECTIVE.fullmatch(bare) if directives else None
            directives = found is not None
            if found is not None and found[1].lower() == "escape" and found[2] != "\\":
                raise Instruction("#", "", number).unsupported("another escape character", "\\ is the one here")
            continue
        directives = False
        if not bare:
            continue
        part = line if begun else bare
        begun = begun or number
        head = part.rstrip(" \t")
        if head.endswith("\\"):
            joined += head[:-1]
            continue
        yield begun, joined + part
        begun, joined = 0, ""
    if begun:
        yield begun, joined


def _instruction(line: int, words: str) -> Instruction:
    word, *rest = re.split(r"[ \t]+", words.strip(" \t"), maxsplit=1)
    found = Instruction(word.upper(), "".join(rest), line)
    if found.word not in INSTRUCTIONS:
        raise found.invalid(f"there is no instruction {word[:40]!r}")
    if not found.rest:
        raise found.invalid(f"{found.word} says nothing")
    if any(one != "\t" and ((one.isspace() and one != " ") or one < " " or one == "\x7f") for one in found.rest):
        raise found.invalid("it has a control character, or a blank that is no space")
    # Readers differ in what two of them mean, and one that joins lines would take the next one for a part of this.
    if found.rest.endswith("\\"):
        raise found.invalid("it ends with more than one escape character")
    if found.word in _WITH_INLINE and any(_INLINE.fullmatch(one) for one in found.rest.split()):
        raise found.unsupported(
            "the engine's builder knows no document inline (<<)", "put it in a file of the context, or use printf"
        )
    return found
