"""What an operator says of the bridge. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from rollbox_bridges.fusion.languages import RECIPES

DEFAULT_IMAGE: Final = "python:3.12-slim"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings of one bridge.

    Attributes:
        url: of the gateway.
        keys: a client's key -> an owner's key of rollbox; empty: they are the same.
        keyless: whether requests without a key are for the owner whose key the bridge has itself.
        image: of all languages that have none of their own.
        images: language -> image.
        memory: of sandboxes whose request has no limit: bytes or a size; None: the installation's default.
        egress: their network policy; None: the installation's default.
        warm: how many sandboxes are kept ready for each image and memory that is in use.
        at_once: how many requests run at a time.
        waiting: how many more wait for their turn.

    Raises:
        ValueError: one of them is not sound.
    """

    url: str | None = None
    keys: Mapping[str, str] = field(default_factory=dict, repr=False)
    keyless: bool = False
    image: str = DEFAULT_IMAGE
    images: Mapping[str, str] = field(default_factory=dict)
    memory: str | None = None
    egress: str | None = None
    warm: int = 4
    at_once: int = 64
    waiting: int = 1000

    def __post_init__(self) -> None:
        if unknown := [name for name in self.images if name not in RECIPES]:
            raise ValueError(f"the language {unknown[0]!r} is none of {', '.join(RECIPES)}")
        for name, least in (("warm", 0), ("at_once", 1), ("waiting", 0)):
            if getattr(self, name) < least:
                raise ValueError(f"{name} is {getattr(self, name)}, less than {least}")

    def image_of(self, language: str) -> str:
        """The image that a language's programs run in."""
        return self.images.get(language, self.image)
