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
TAB: Final = "\t"
INSTRUCTIONS: Final = frozenset(
    {"ADD", "ARG", "CMD", "COPY", "ENTRYPOINT", "ENV", "EXPOSE", "FROM", "HEALTHCHECK", "LABEL", "MAINTAINER"}
    | {"ONBUILD", "RUN", "SHELL", "STOPSIGNAL", "USER", "VOLUME", "WORKDIR"}
)
_DIRECTIVE: Final = re.compile(r"#\s*([a-zA-Z]+)\s*=\s*(\S.*?)\s*")
# A word that begins a document inline; `<<<` begins none. Those of RUN its shell reads, and is not to read others.
_INLINE: Final = re.compile(r"\d*<<(?P<tabs>-?)(?P<quote>[\"']?)(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?P=quote)")
_INLINE_FILE: Final = re.compile(r"<<(?P<tabs>-?)(?P<quote>[\"']?)(?P<name>[A-Za-z0-9_][A-Za-z0-9_.-]*)(?P=quote)")
_LIKE_INLINE: Final = re.compile(r"\d*<<-?[\"']?[A-Za-z_]\S*")
_LIKE_INLINE_FILE: Final = re.compile(r"<<[^<]\S*")
_FORMS: Final = {
    "RUN": (_LIKE_INLINE, _INLINE),
    "COPY": (_LIKE_INLINE_FILE, _INLINE_FILE),
    "ADD": (_LIKE_INLINE_FILE, _INLINE_FILE),
}


@dataclass(frozen=True, slots=True)
class Document:
    """A document inline.

    Attributes:
        word: that begins it, ``<<EOF``.
        name: ``EOF``.
        lines: as they are written.
        last: the line that ends it.
        without_tabs: those before each line do not count.
        is_literal: variables in it stand for themselves.
    """

    word: str
    name: str
    lines: Sequence[str]
    last: str
    without_tabs: bool
    is_literal: bool

    @property
    def text(self) -> str:
        """What it says."""
        return "".join(f"{line.lstrip(TAB) if self.without_tabs else line}\n" for line in self.lines)


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction.

    Attributes:
        word: its name, in capitals.
        rest: what follows, on one line.
        line: where it begins, from 1.
        documents: those inline behind it.
    """

    word: str
    rest: str
    line: int
    documents: Sequence[Document] = ()

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
        Problem: invalid_argument; unsupported: another escape character; payload_too_large.
    """
    if len(text.encode()) > MOST_BYTES:
        raise Problem("payload_too_large", f"a Dockerfile has at most {MOST_BYTES} bytes here", field="dockerfile")
    lines = enumerate(text.removeprefix("\ufeff").replace("\r\n", "\n").split("\n"), 1)
    found = [_with_documents(_instruction(line, words), lines) for line, words in _logical(lines)]
    if len(found) > MOST_INSTRUCTIONS:
        detail = f"a Dockerfile has at most {MOST_INSTRUCTIONS} instructions here, this one has {len(found)}"
        raise Problem("payload_too_large", detail, field="dockerfile")
    return found


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
    if one.word not in _FORMS:
        return one
    like, form = _FORMS[one.word]
    begun = [word for word in one.rest.split() if like.fullmatch(word)]
    return replace(one, documents=[_document(one, word, form.fullmatch(word), lines) for word in begun])


def _document(one: Instruction, word: str, found: re.Match[str] | None, lines: Iterator[tuple[int, str]]) -> Document:
    if found is None:
        raise one.invalid(f"{word[:40]!r} begins no document that is read here: <<NAME, <<'NAME' or <<-NAME")
    name, tabs = found["name"], bool(found["tabs"])
    taken: list[str] = []
    for _, line in lines:
        if (line.lstrip(TAB) if tabs else line) == name:
            return Document(word, name, taken, line, tabs, bool(found["quote"]))
        taken.append(line)
    raise one.invalid(f"its document has no end: a line {name!r}")
