"""Which sandbox and which of its ports a request is for: by two headers, or by the host's name. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from rollbox_bridges.e2b.words import Refusal

_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,127}")
_HOST: Final = re.compile(r"(\d{1,5})-([a-z0-9][a-z0-9_-]{0,127})\.(.+?)(:\d+)?", re.IGNORECASE)
_PORT: Final = re.compile(r"[0-9]{1,5}")
_MOST_PORT: Final = 65_535


class Place(NamedTuple):
    """A port of a sandbox."""

    sandbox_id: str
    port: int


def place_of(headers: Mapping[str, str], host: str, domain: str | None) -> Place | None:
    """Read where a request is for; None: it is for the control plane.

    Args:
        headers: of the request.
        host: its host, with a port or without.
        domain: below which sandboxes have names, with a port or without; None: any.

    Raises:
        Refusal: what it says is no id, or no port.
    """
    sandbox_id, port = headers.get("E2b-Sandbox-Id"), headers.get("E2b-Sandbox-Port")
    if sandbox_id is not None:
        return Place(_checked(sandbox_id), _port(port or ""))
    named = _HOST.fullmatch(host)
    if named is None or (domain is not None and named[3].lower() != domain.lower().partition(":")[0]):
        return None
    return Place(_checked(named[2]), _port(named[1]))


def _checked(sandbox_id: str) -> str:
    if not _ID.fullmatch(sandbox_id):
        raise Refusal(400, f"{sandbox_id[:64]!r} is no id of a sandbox")
    return sandbox_id


def _port(text: str) -> int:
    if not _PORT.fullmatch(text) or not 1 <= int(text) <= _MOST_PORT:
        raise Refusal(400, f"{text[:20]!r} is no port: E2b-Sandbox-Port is a number from 1 to {_MOST_PORT}")
    return int(text)
