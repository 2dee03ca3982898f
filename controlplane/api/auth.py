"""Authentication of callers by API key, compared in constant time."""

import hashlib
import hmac
from collections.abc import Mapping

from controlplane.errors import Problem


class ApiKeys:
    """Maps API keys to owners; keeps only the keys' digests.

    Args:
        keys: key -> owner; must not be empty, since every request needs a key.
    """

    def __init__(self, keys: Mapping[str, str]) -> None:
        if not keys:
            raise ValueError("at least one API key is needed")
        self._owners = {_digest(key): owner for key, owner in keys.items()}

    def owner(self, authorization: str | None) -> str:
        """The owner behind an Authorization header.

        Raises:
            Problem: unauthenticated.

        Cost: one comparison per configured key, also after a match.
        """
        credential = bearer(authorization)
        given = _digest(credential)
        # Every key is compared, so that the response time reveals nothing about which key matched (timing attack).
        matches = [owner for known, owner in self._owners.items() if hmac.compare_digest(known, given)]
        if not matches:
            raise Problem("unauthenticated", "the API key is not known here", reason="api_key")
        return matches[0]


def bearer(authorization: str | None) -> str:
    """The credential in an Authorization header.

    Raises:
        Problem: unauthenticated, when there is none.
    """
    scheme, _, credential = (authorization or "").partition(" ")
    if scheme.lower() != "bearer" or not credential.strip():
        raise Problem("unauthenticated", "the request carries no `Authorization: Bearer ...` header", reason="api_key")
    return credential.strip()


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode()).digest()
