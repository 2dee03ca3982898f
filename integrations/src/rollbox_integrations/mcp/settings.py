"""What the person says who starts the server: the model that uses it cannot change that. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

DEFAULT_IMAGE: Final = "python:3.12-slim"
OFFLINE: Final = "offline"
DEFAULT_TTL_S: Final = 3600
MOST_TTL_S: Final = 7 * 24 * 3600


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The limits of one server.

    Attributes:
        image: of a sandbox that is created without one.
        egress: the presets that a create may ask for; the first is that of one that asks for none.
        max_sandboxes: how many there may be at a time.
        max_ttl: seconds that a sandbox may live.
        public_ports: whether a tool may open ports to everybody.
    """

    image: str = DEFAULT_IMAGE
    egress: tuple[str, ...] = (OFFLINE,)
    max_sandboxes: int = 8
    max_ttl: int = DEFAULT_TTL_S
    public_ports: bool = False
