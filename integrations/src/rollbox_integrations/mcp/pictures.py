"""Pictures that a model can look at. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from rollbox_integrations.mcp.outputs import Output

MOST_PICTURE_BYTES: Final = 2**20
MOST_PICTURES: Final = 8
_BEGINNINGS: Final = {b"\x89PNG\r\n\x1a\n": "image/png", b"\xff\xd8\xff": "image/jpeg", b"GIF8": "image/gif"}


@dataclass(frozen=True, slots=True)
class Picture:
    """A picture: its media type and its bytes."""

    mime: str
    data: bytes


@dataclass(frozen=True, slots=True)
class Shown:
    """What a tool returns, with pictures beside its structured content."""

    output: Output
    pictures: list[Picture] = field(default_factory=list)


def kind(data: bytes) -> str | None:
    """Return the media type of a picture by how it begins; None: it is none."""
    return next((mime for begins, mime in _BEGINNINGS.items() if data.startswith(begins)), None)
