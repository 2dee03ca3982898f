"""Registries in memory: tags that move, answers that take time, and failures; passes `RegistrySuite`."""

import asyncio
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from controlplane.errors import Problem
from controlplane.images import ImageConfig, Reference, digest_of
from controlplane.registry import Outcome, RegistryProblem


def digest(word: str) -> str:
    """A digest that stands for this word."""
    return digest_of(word.encode())


@dataclass
class FakeRegistry:
    """Every image is there, with the digest of `content`."""

    content: str = "a"
    takes_s: float = 0.0
    outcome: Outcome | None = None
    pause_s: float | None = None
    refused: str = ""
    asked: list[str] = field(default_factory=list)
    layers: dict[str, int] = field(default_factory=dict)
    # Who may have it; None: everybody.
    allowed: set[str] | None = None

    async def digest(self, reference: Reference, owner: str = "") -> str:
        self.asked.append(str(reference))
        outcome, content = self.outcome, self.content
        await asyncio.sleep(self.takes_s)
        if outcome is not None:
            raise RegistryProblem(outcome, reference.registry, f"{reference} is {outcome}", self.pause_s)
        if self.allowed is not None and owner not in self.allowed:
            raise RegistryProblem("denied", reference.registry, f"it does not give {reference} to {owner}")
        return digest(content)

    async def check(
        self, reference: Reference, digest: str, architectures: Collection[str], owner: str = ""
    ) -> Mapping[str, int]:
        assert digest.startswith("sha256:")
        assert "amd64" in set(architectures)
        if self.refused:
            raise Problem("unsupported", f"image {reference} cannot run here: {self.refused}", option="image")
        return self.layers

    async def config(
        self, reference: Reference, digest: str, architectures: Collection[str], owner: str = ""
    ) -> ImageConfig:
        digest = digest or await self.digest(reference, owner)
        await self.check(reference, digest, architectures, owner)
        return ImageConfig(digest, "amd64", cmd=(self.content,))
