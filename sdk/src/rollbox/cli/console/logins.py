"""Who may look: a code for one use becomes a session. Pure but for its random numbers."""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Callable
from typing import Literal

CODE_S = 600.0
"""How long the code in the printed address can be used."""
SESSION_S = 12 * 3600.0
"""How long a browser stays logged in."""

Refusal = Literal["wrong", "used", "lapsed"]


class Logins:
    """The code of one `rollbox ui`, and the session that a browser got for it.

    Args:
        clock: seconds, monotonic.

    Attributes:
        code: for one use.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self.code = secrets.token_urlsafe(24)
        self._clock = clock
        self._code_until_s = clock() + CODE_S
        self._session = ""
        self._session_until_s = 0.0

    def exchange(self, code: str) -> tuple[str, None] | tuple[None, Refusal]:
        """Give a session for the code, once; or say why not."""
        if not hmac.compare_digest(code.encode(), self.code.encode()):
            return None, "wrong"
        if self._session:
            return None, "used"
        if self._clock() >= self._code_until_s:
            return None, "lapsed"
        self._session = secrets.token_urlsafe(32)
        self._session_until_s = self._clock() + SESSION_S
        return self._session, None

    def knows(self, session: str) -> bool:
        """Whether this session is the one that was given, and its time is not over."""
        there = bool(self._session) and hmac.compare_digest(
            session.encode(errors="surrogateescape"), self._session.encode()
        )
        return there and self._clock() < self._session_until_s
