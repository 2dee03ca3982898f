"""The id of a command at the platform: it holds E2B's tag, and whether the command has a terminal. Pure.

So a bridge that was started anew finds all commands.
"""

from __future__ import annotations

import re
import secrets
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Final

from rollbox_bridges.connect.codes import ConnectError

PREFIX: Final = "e2b-"
"""How the ids of commands begin that E2B's clients have started."""
_TERMINAL: Final = "t"
_PIPES: Final = "p"
# An id has 64 characters at most: the prefix, the kind, eight bytes in hexadecimal, and the tag in base64.
_ID: Final = re.compile(rf"{PREFIX}([tp])-[0-9a-f]{{16}}-([A-Za-z0-9_-]*)")
_MOST_TAG_BYTES: Final = 30


def exec_id_of(tag: str | None, *, terminal: bool) -> str:
    """Make the id of a command, with its tag, and whether it has a terminal.

    Raises:
        ConnectError: the tag is too long.
    """
    data = (tag or "").encode()
    if len(data) > _MOST_TAG_BYTES:
        raise ConnectError("invalid_argument", f"the tag has {len(data)} bytes, more than {_MOST_TAG_BYTES}")
    kind = _TERMINAL if terminal else _PIPES
    return f"{PREFIX}{kind}-{secrets.token_hex(8)}-{urlsafe_b64encode(data).decode().rstrip('=')}"


def on_terminal(exec_id: str) -> bool:
    """Whether a command has a terminal."""
    found = _ID.fullmatch(exec_id)
    return found is not None and found[1] == _TERMINAL


def tag_of(exec_id: str) -> str | None:
    """The tag in the id of a command; None: it has none."""
    found = _ID.fullmatch(exec_id)
    if found is None or not found[2]:
        return None
    return urlsafe_b64decode(found[2] + "=" * (-len(found[2]) % 4)).decode("utf-8", "replace")
