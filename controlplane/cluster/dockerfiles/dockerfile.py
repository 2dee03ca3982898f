"""The lines of a Dockerfile, each instruction on one: what is judged is what the builder is given, word for word. Pure.

The builder reads the engine's images and the machine's network with the engine's own rights, so each source that a
Dockerfile names has to be known before. Two readers of one text may differ; so the builder never gets the text, but
these lines, in which nothing is left to interpret: no continuations, comments, directives and documents inline.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
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
_INLINE: Final = re.compile(r"\d*<<(?P<tabs>-?)(?P<quote>[\"']?)(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?P=quote)")
_LIKE_INLINE: Final = re.compile(r"\d*<<-?[\"']?[A-Za-z_]\S*")
_WITH_INLINE: Final = frozenset({"RUN", "COPY", "ADD"})


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction.

    Attributes:
        word: its name, in capitals.
        rest: what follows, on one line.
        line: where it begins, from 1.
        documents: those inline behind it, each with its last line.
    """

    word: str
    rest: str
    line: int
    documents: Sequence[str] = ()

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
        Problem: invalid_argument; unsupported: a document inline of another instruction than RUN; payload_too_large.
    """
    if len(text.encode()) > MOST_BYTES:
        raise Problem("payload_too_large", f"a Dockerfile has at most {MOST_BYTES} bytes here", field="dockerfile")
    lines = enumerate(text.removeprefix("\ufeff").replace("\r\n", "\n").split("\n"), 1)
    found = [_with_documents(_instruction(line, words), lines) for line, words in _logical(lines)]
    if len(found) > MOST_INSTRUCTIONS:
        detail = f"a Dockerfile has at most {MOST_INSTRUCTIONS} instructions here, this one has {len(found)}"
        raise Problem("payload_too_large", detail, field="dockerfile")
    return found


def is_document(words: str) -> bool:
    """Whether the words of a RUN are nothing but the beginning of a document."""
    return _INLINE.fullmatch(words) is not None


def _logical(lines: Iterator[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    """The lines as continuations join them, without comments, each with the number of its first one."""
    directives, begun, joined = True, 0, ""
    for number, line in lines:
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
    return found


def _with_documents(one: Instruction, lines: Iterator[tuple[int, str]]) -> Instruction:
    """An instruction with the documents inline that follow it, which are taken from the lines."""
    begun = [word for word in one.rest.split() if _LIKE_INLINE.fullmatch(word)] if one.word in _WITH_INLINE else []
    if not begun:
        return one
    if one.word != "RUN":
        raise one.unsupported(
            f"a document inline (<<) of {one.word}",
            "have it in a file of the context, or write it by RUN cat > FILE <<",
        )
    documents = []
    for word in begun:
        found = _INLINE.fullmatch(word)
        if found is None:
            raise one.invalid(f"{word[:40]!r} begins no document that is read here: <<NAME, <<'NAME' or <<-NAME")
        documents.append(_document(one, found["name"], lines, tabs=bool(found["tabs"])))
    return replace(one, documents=documents)


def _document(one: Instruction, name: str, lines: Iterator[tuple[int, str]], *, tabs: bool) -> str:
    taken: list[str] = []
    for _, line in lines:
        taken.append(line)
        if (line.lstrip("\t") if tabs else line) == name:
            return "\n".join(taken)
    raise one.invalid(f"its document has no end: a line {name!r}")
