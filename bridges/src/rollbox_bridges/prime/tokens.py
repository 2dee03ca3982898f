"""The credentials of the gateway: an owner's key and a time, sealed for one sandbox. Pure."""

from __future__ import annotations

from typing import Final

from rollbox_bridges.credentials import Credentials

LIFE_S: Final = 24 * 3600
"""How long one is good: clients keep them in a file, and ask for another one by themselves."""
_PURPOSE: Final = "prime"


class Tokens:
    """Makes and opens tokens.

    Args:
        secret: at least 16 bytes.
    """

    def __init__(self, secret: bytes) -> None:
        self._credentials = Credentials(secret)

    def made(self, sandbox_id: str, api_key: str, expires_at_s: int) -> str:
        """Make the token of a sandbox, which is good until then."""
        return self._credentials.sealed(_PURPOSE, sandbox_id, f"{expires_at_s} {api_key}")

    def opened(self, sandbox_id: str, token: str, now_s: float) -> str | None:
        """Return the key in a token; None where it is none for this sandbox, or not good any more."""
        expires_at_s, _, key = (self._credentials.opened(_PURPOSE, sandbox_id, token) or "0 ").partition(" ")
        return key if key and now_s < int(expires_at_s) else None
