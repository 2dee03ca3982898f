"""Rewrite rules: from which registry images are pulled instead of the one that their name says.

``docker.io/* -> mirror.example.com/hub/*`` takes every image of Docker Hub from a mirror; a rule without ``*`` is for
one repository. The first rule that matches holds, and it is applied once.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Self

from controlplane.images.reference import Reference, check_registry, names_registry, parse

MAX_RULES: Final = 64
_ARROW: Final = re.compile(r"\s*->\s*")


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule; with ``prefix`` both sides stand for all repositories that begin with them and a slash."""

    source: str
    target: str
    prefix: bool

    @classmethod
    def parse(cls, text: str) -> Self:
        """Reads ``FROM -> TO``.

        Raises:
            ValueError: it is no such rule; the message says why.
        """
        sides = _ARROW.split(text.strip())
        if len(sides) != 2:
            raise ValueError(
                f"{text.strip()[:140]!r} must be FROM -> TO, such as 'docker.io/* -> mirror.example.com/*'"
            )
        source, target = sides
        if source.endswith("/*") != target.endswith("/*"):
            raise ValueError(f"{text.strip()[:140]!r}: both sides must end in '/*', or neither")
        return cls(_side(source), _side(target), source.endswith("/*"))

    def covers(self, name: str) -> bool:
        """Whether it applies to this registry and repository."""
        return name.startswith(f"{self.source}/") if self.prefix else name == self.source

    def applied(self, reference: Reference) -> Reference:
        """The reference under its other name; tag and digest stay."""
        name = self.target + reference.name[len(self.source) :]
        registry, _, repository = name.partition("/")
        return Reference(registry, repository, reference.tag, reference.digest)


@dataclass(frozen=True, slots=True)
class Rewrites:
    """All rules of an installation, in their order."""

    rules: Sequence[Rule] = ()

    @classmethod
    def parse(cls, text: str) -> Self:
        """Reads rules that are separated by commas or line breaks.

        Raises:
            ValueError: one is malformed, or can never apply since an earlier one always does.
        """
        rules = [Rule.parse(one) for one in text.replace("\n", ",").split(",") if one.strip()]
        if len(rules) > MAX_RULES:
            raise ValueError(f"{len(rules)} rules are more than {MAX_RULES}")
        for position, rule in enumerate(rules):
            if any(_hides(earlier, rule) for earlier in rules[:position]):
                raise ValueError(f"the rule for {rule.source!r} can never apply: an earlier rule does in every case")
        return cls(tuple(rules))

    def applied(self, reference: Reference) -> Reference:
        """Where the image is pulled from: the same reference where no rule applies."""
        for rule in self.rules:
            if rule.covers(reference.name):
                return rule.applied(reference)
        return reference


def _side(text: str) -> str:
    name = text.removesuffix("/*")
    registry, slash, repository = name.partition("/")
    if not names_registry(registry):
        raise ValueError(f"{text[:140]!r} must begin with a registry: a host name with a dot or a port, or localhost")
    check_registry(registry)
    if slash:
        # Read as the name of an image, which it is but for the end.
        parse(name)
    elif name == text:
        raise ValueError(f"{text[:140]!r} must name a repository, or end in '/*'")
    # As in the names of images.
    return registry.lower() + slash + repository


def _hides(earlier: Rule, later: Rule) -> bool:
    """Whether everything that ``later`` covers is covered by ``earlier``."""
    return earlier.covers(f"{later.source}/" if later.prefix else later.source)
