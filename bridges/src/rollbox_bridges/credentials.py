"""The credentials that a bridge hands out for one sandbox: its owner's key, sealed. Pure.

Nothing about them is stored, so that they are good after a restart of the bridge; the same secret has to be given then.
"""

from __future__ import annotations

import hashlib
from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as NotBase64
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESSIV

_PREFIX: Final = "rbx_"
_MOST: Final = 4096


class Credentials:
    """Seals keys, and opens what it has sealed.

    Args:
        secret: at least 16 bytes; with it the keys in credentials can be read.
    """

    def __init__(self, secret: bytes) -> None:
        self._cipher = AESSIV(hashlib.sha512(b"rollbox bridge\0" + secret).digest())

    def sealed(self, purpose: str, sandbox_id: str, api_key: str) -> str:
        """Make the credential of a sandbox; the same arguments make the same.

        Args:
            purpose: what it is good for, in the protocol's words.
            sandbox_id: the one sandbox that it is good for.
            api_key: of its owner.
        """
        data = self._cipher.encrypt(api_key.encode(), _bound(purpose, sandbox_id))
        return _PREFIX + urlsafe_b64encode(data).decode().rstrip("=")

    def opened(self, purpose: str, sandbox_id: str, credential: str) -> str | None:
        """Return the key in a credential; None where it is none for this sandbox and purpose."""
        body = credential.removeprefix(_PREFIX)
        if body == credential or len(body) > _MOST:
            return None
        try:
            data = urlsafe_b64decode(body + "=" * (-len(body) % 4))
            return self._cipher.decrypt(data, _bound(purpose, sandbox_id)).decode()
        except (InvalidTag, NotBase64, ValueError):
            return None


def _bound(purpose: str, sandbox_id: str) -> list[bytes]:
    return [purpose.encode(), sandbox_id.encode()]
