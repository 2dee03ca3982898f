"""Variables of a stage as they are at a line: those of its base, of its ENVs and of its ARGs. Pure.

What the builder expands itself it is given as it is; this is for what is made before: documents inline, addresses.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Final

from controlplane.cluster.dockerfiles.dockerfile import Instruction

Values = Mapping[str, str]
# Values that name one another would grow without an end.
MOST_CHARS: Final = 1 << 20
MOST_DEPTH: Final = 8
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# Of a shell's own parameters, which have no value here.
_PARAMETER: Final = re.compile(r"[0-9@*#?!$-]")
_CHOICE: Final = re.compile(r":?[-+?]")
# One of its settings: what follows is a stage on top of the one before.
STAGE: Final = Instruction("FROM", "", 0)


def at(base: Values, settings: Sequence[Instruction], arguments: Values, known: Values) -> Values:
    """The variables behind the last of these settings.

    Args:
        base: of the image below.
        settings: ENV and ARG instructions, and ``STAGE``.
        arguments: of the build.
        known: what an ARG without a value takes: those before the first FROM.

    Raises:
        Problem: invalid_argument: one is written in a way that is not read here.
    """
    kept, declared = dict(base), dict[str, str]()
    for one in settings:
        if one.word == STAGE.word:
            declared = {}
            continue
        seen = {**declared, **kept}
        for name, value in _pairs(one):
            if one.word == "ENV":
                kept[name] = expanded(one, value or "", seen)
            elif name in arguments:
                declared[name] = arguments[name]
            elif value is not None:
                declared[name] = expanded(one, value, seen)
            elif name in known:
                declared[name] = known[name]
    return {**declared, **kept}


def expanded(one: Instruction, text: str, values: Values, *, with_quotes: bool = True, depth: int = 0) -> str:
    """A text with the values of its variables.

    Args:
        one: the instruction, for what is told of a mistake.
        text: words of it, or a document inline.
        values: by name.
        with_quotes: they are read; in a document they are characters as others are.
        depth: how many choices (``${A:-B}``) this is in.

    Raises:
        Problem: invalid_argument: it is written in a way that is not read here.
    """
    if depth > MOST_DEPTH:
        raise one.invalid(f"more than {MOST_DEPTH} choices are in one another")
    told: list[str] = []
    inside, at_char = False, 0
    while at_char < len(text):
        char, after = text[at_char], text[at_char + 1 : at_char + 2]
        if char == "'" and with_quotes and not inside:
            end = text.find("'", at_char + 1)
            if end < 0:
                raise one.invalid(f"a quote of {text[:100]!r} has no end")
            told.append(text[at_char + 1 : end])
            at_char = end + 1
        elif char == '"' and with_quotes:
            inside, at_char = not inside, at_char + 1
        elif char == "\\" and after:
            told.append(after if not inside or after in '"$\\' else char + after)
            at_char += 2
        elif char == "$":
            value, at_char = _variable(one, text, at_char + 1, values, depth)
            told.append(value)
        else:
            told.append(char)
            at_char += 1
    if inside:
        raise one.invalid(f"a quote of {text[:100]!r} has no end")
    if sum(map(len, told)) > MOST_CHARS:
        raise one.invalid(f"with the values of its variables it has more than {MOST_CHARS} characters")
    return "".join(told)


def _variable(one: Instruction, text: str, begin: int, values: Values, depth: int) -> tuple[str, int]:
    """The value of the variable whose name begins here, and where it ends."""
    if not text.startswith("{", begin):
        if found := _NAME.match(text, begin):
            return values.get(found[0], ""), found.end()
        found = _PARAMETER.match(text, begin)
        return ("", found.end()) if found else ("$", begin)
    found = _NAME.match(text, begin + 1)
    end = _closing(text, begin + 1)
    how = _CHOICE.match(text, found.end()) if found else None
    if found is None or end < 0 or not (how or found.end() == end):
        raise one.invalid(f"{text[begin - 1 : begin + 40]!r} is written in a way that is not read here")
    value = values.get(found[0])
    if how is None:
        return value or "", end + 1
    there = bool(value) if how[0].startswith(":") else value is not None
    other = text[how.end() : end]
    if how[0].endswith("?") and not there:
        raise one.invalid(f"${found[0]} has no value: {other[:100]}")
    if how[0].endswith("+"):
        return expanded(one, other, values, depth=depth + 1) if there else "", end + 1
    return (value or "") if there else expanded(one, other, values, depth=depth + 1), end + 1


def _closing(text: str, begin: int) -> int:
    """Where the brace that is open here is closed; -1: nowhere."""
    depth = 1
    for place in range(begin, len(text)):
        depth += {"{": 1, "}": -1}.get(text[place], 0)
        if not depth:
            return place
    return -1


def _pairs(one: Instruction) -> list[tuple[str, str | None]]:
    """Names and values, as they are written; None: a name without a value."""
    words = _words(one)
    if one.word == "ENV" and "=" not in words[0]:
        return [(words[0], one.rest[len(words[0]) :].strip(" \t"))]
    told = [word.partition("=") for word in words]
    return [(name, value if equals else None) for name, equals, value in told]


def _words(one: Instruction) -> list[str]:
    """Words with their quotes: what is between quotes, or behind an escape character, divides none."""
    found = re.findall(r"(?:\\.|'[^']*'|\"(?:\\.|[^\"\\])*\"|[^\s\\'\"])+", one.rest)
    if re.sub(r"\s", "", "".join(found)) != re.sub(r"\s", "", one.rest):
        raise one.invalid("a quote has no end")
    return found
