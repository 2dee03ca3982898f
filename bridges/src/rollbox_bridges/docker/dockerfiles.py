"""Dockerfiles that begin with images of this bridge: its names for them are put in the platform's. Pure.

Images that are named in another way (by an argument within a longer name, for example) are looked up by the platform.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final

_FROM: Final = re.compile(r"(\s*FROM\s+(?:--\S+\s+)*)(\S+)((?:\s+AS\s+(\S+))?\s*)", re.IGNORECASE)
_ARGUMENT: Final = re.compile(r"\s*ARG\s+(\w+)=(\S+)\s*", re.IGNORECASE)
_VARIABLE: Final = re.compile(r"\$(?:\{(\w+)\}|(\w+))")
# An instruction with its flags, in which an image may be named, and the rest.
_FLAGGED: Final = re.compile(r"(\s*(?:ONBUILD\s+)?(?:COPY|ADD|RUN)\s+(?:--\S+\s+)*)(.*)", re.IGNORECASE)
_PART: Final = re.compile(r"\b(from=)([^\s,]+)")
# Directives are at the top alone.
_ESCAPE: Final = re.compile(r"(?:\s*#\s*\w+\s*=.*\n)*?\s*#\s*escape\s*=\s*([\\`])\s*\n", re.IGNORECASE)
_INLINE: Final = re.compile(r"<<-?[\"']?(\w+)[\"']?")


def mapped(text: str, args: Mapping[str, str], source: Callable[[str], str]) -> tuple[str, dict[str, str]]:
    """Return a Dockerfile and its arguments with the platform's names of images.

    Args:
        text: of the Dockerfile.
        args: values of its ARGs.
        source: the platform's name of an image; another name is returned as it is.
    """
    mapping = _Mapping(args, source)
    return "\n".join(mapping.line(line) for line in text.split("\n")), mapping.args


def labelled(text: str, labels: Mapping[str, str]) -> str:
    """Return a Dockerfile whose last stage has these labels too.

    Args:
        text: of the Dockerfile.
        labels: without line breaks in their names and values.
    """
    if not labels:
        return text
    directive = _ESCAPE.match(text)
    escape = directive[1] if directive else "\\"

    def quoted(word: str) -> str:
        return '"' + "".join(f"{escape}{one}" if one in {'"', "$", escape} else one for one in word) + '"'

    pairs = " ".join(f"{quoted(name)}={quoted(value)}" for name, value in labels.items())
    # Where the last line is to be continued, nothing more comes.
    return f"{text.rstrip().removesuffix(escape)}\nLABEL {pairs}\n"


class _Mapping:
    """What is known of a Dockerfile while its lines are read.

    Attributes:
        args: values of its ARGs, with the platform's names.
    """

    def __init__(self, args: Mapping[str, str], source: Callable[[str], str]) -> None:
        self.args = dict(args)
        self._source = source
        self._stages: set[str] = set()
        self._defaults: dict[str, str] = {}
        # The words that end the documents inline of which this is a line.
        self._inline: list[str] = []

    def line(self, text: str) -> str:
        """A line with the platform's names."""
        if self._inline:
            self._inline = self._inline[1:] if text.strip() == self._inline[0] else self._inline
            return text
        if found := _ARGUMENT.fullmatch(text):
            self._defaults.setdefault(found[1], found[2])
        elif found := _FROM.fullmatch(text):
            image = self._begun(found[2])
            self._stages |= {found[4].lower()} if found[4] else set()
            return f"{found[1]}{image}{found[3]}"
        elif found := _FLAGGED.fullmatch(text):
            self._inline = _INLINE.findall(found[2])
            return _PART.sub(lambda part: part[1] + self._of(part[2]), found[1]) + found[2]
        return text

    def _begun(self, image: str) -> str:
        """What a FROM names; where it is an argument alone, that gets another value."""
        variable = _VARIABLE.fullmatch(image)
        if variable is None:
            return self._of(image)
        name = variable[1] or variable[2]
        value = self.args.get(name, self._defaults.get(name, ""))
        if value and (named := self._of(value)) != value:
            self.args[name] = named
        return image

    def _of(self, image: str) -> str:
        known = image.lower() in self._stages or image.isdigit() or "$" in image
        return image if known else self._source(image)
