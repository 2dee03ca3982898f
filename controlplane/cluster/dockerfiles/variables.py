"""Arguments before the first FROM, and what they mean in the name of an image. Pure."""

import re
from collections.abc import Mapping
from typing import Final

from controlplane.cluster.dockerfiles.dockerfile import Instruction

_NAME: Final = r"[A-Za-z_][A-Za-z0-9_]*"
_ARG: Final = re.compile(rf"(?P<name>{_NAME})(?:=(?P<value>\"[^\"\\]*\"|'[^']*'|[^\s\"'\\]*))?")
_USE: Final = re.compile(rf"\$(?:(?P<plain>{_NAME})|\{{(?P<name>{_NAME})(?::(?P<how>[-+])(?P<other>[^${{}}]*))?\}})")


def declared(one: Instruction, given: Mapping[str, str], known: Mapping[str, str]) -> Mapping[str, str]:
    """The values that an ARG declares.

    Args:
        one: the instruction.
        given: with the build, which take the place of defaults.
        known: declared before, which defaults may use.

    Raises:
        Problem: invalid_argument: it is written in a way that is not read here.
    """
    values: dict[str, str] = {}
    rest = one.rest
    while rest:
        found = _ARG.match(rest)
        if found is None or not (found.end() == len(rest) or rest[found.end()] in " \t"):
            raise one.invalid("ARG before the first FROM is NAME or NAME=VALUE, in plain quotes or none")
        value, rest = found["value"], rest[found.end() :].strip(" \t")
        if found["name"] in given:
            values[found["name"]] = given[found["name"]]
        elif value is not None:
            literal = value.startswith("'")
            text = value[1:-1] if value[:1] in "\"'" and value else value
            values[found["name"]] = text if literal else expanded(one, text, {**known, **values})
    return values


def expanded(one: Instruction, text: str, known: Mapping[str, str]) -> str:
    """A text with the values of its variables.

    Raises:
        Problem: invalid_argument: it uses them in a way that is not read here, or one that has no value.
    """

    def value(found: re.Match[str]) -> str:
        name = found["plain"] or found["name"]
        has = known.get(name, "")
        if found["how"] == "+":
            return found["other"] if has else ""
        if has or found["how"] == "-":
            return has or found["other"]
        raise one.invalid(f"${name} has no value: give it with the build (args), or a default by ARG before FROM")

    told = _USE.sub(value, text)
    if re.search(r"[$\"'\\\s]", told):
        raise one.invalid(
            f"{text[:100]!r} is written in a way that is not read here: $NAME, ${{NAME}}, ${{NAME:-VALUE}}"
        )
    return told
