"""Authentication of callers by API key: those of the settings, compared in constant time, and those on record."""

import hashlib
import hmac
from collections.abc import Mapping
from typing import Final, Protocol

from controlplane.access import EVERY, IN_SETTINGS, SCOPES, SHARE_PREFIX, Caller, Share, key_id
from controlplane.clock import Clock
from controlplane.errors import Problem
from controlplane.lifecycle.keys import Refused
from controlplane.lifecycle.keys.declared import StoredKey

_SAID: Final[Mapping[Refused, tuple[str, str]]] = {
    "unknown": ("the API key is not known here", "api_key"),
    "expired": ("the API key {id} has expired, or was rotated", "api_key_expired"),
    "revoked": ("the API key {id} was revoked", "api_key_revoked"),
}


class KeyRecords(Protocol):
    """The keys on record: ``lifecycle.keys.StoredKeys``."""

    async def find(self, key_id: str) -> StoredKey | None:
        """One key; None: there is none."""
        ...

    def use(self, key: StoredKey) -> None:
        """Notes that it was used."""
        ...


class SharedKeys(Protocol):
    """What reads shared keys: the ``SigningKey``."""

    def read_share(self, text: str) -> Share:
        """What one says.

        Raises:
            Problem: unauthenticated.
        """
        ...


class ApiKeys:
    """Finds out which owner's key a request shows, and what it allows; keeps digests of the settings' keys alone.

    Args:
        keys: those of the settings, key -> owner; must not be empty, since every request needs a key.
        operators: owners whose keys of the settings are operators'.
        records: the keys on record.
        shared: reads shared keys.
        clock: of expiries.
    """

    def __init__(
        self,
        keys: Mapping[str, str],
        operators: frozenset[str],
        records: KeyRecords,
        shared: SharedKeys,
        clock: Clock,
    ) -> None:
        if not keys:
            raise ValueError("at least one API key is needed")
        every, all_scopes = EVERY, frozenset(SCOPES)
        self._callers = {
            _digest(key): Caller(owner, IN_SETTINGS, all_scopes if owner in operators else every)
            for key, owner in keys.items()
        }
        self._records, self._shared, self._clock = records, shared, clock

    async def caller(self, authorization: str | None) -> Caller:
        """The caller behind an Authorization header.

        Raises:
            Problem: unauthenticated; upstream_timeout, of a key on record: whether it is in force is not to be known.

        Cost: one comparison per key of the settings, also after a match. For a key on record 10 us, and a read of the
        store that all calls of half a second share. For a shared key the same, and the first time a signature, 0.1 ms.
        """
        credential = bearer(authorization)
        if credential.startswith(SHARE_PREFIX):
            return await self._by_share(self._shared.read_share(credential.removeprefix(SHARE_PREFIX)))
        try:
            found = key_id(credential)
        except ValueError as error:
            raise Problem("unauthenticated", f"the API key is no key: {error}", reason="api_key") from error
        return self._in_settings(credential) if found is None else await self._on_record(found, credential)

    def _in_settings(self, credential: str) -> Caller:
        given = _digest(credential)
        # Every key is compared, so that the response time reveals nothing about which key matched (timing attack).
        matches = [caller for known, caller in self._callers.items() if hmac.compare_digest(known, given)]
        if not matches:
            raise _refusal("unknown")
        return matches[0]

    async def _on_record(self, wanted: str, credential: str) -> Caller:
        key = await self._records.find(wanted)
        why = "unknown" if key is None else key.declared.refused(credential, self._clock.now_ms())
        if key is None or why is not None:
            raise _refusal(why or "unknown", wanted)
        self._records.use(key)
        declared = key.declared
        return Caller(declared.owner, key.id, frozenset(declared.scopes), declared.expires_at_ms)

    async def _by_share(self, share: Share) -> Caller:
        """A shared key is in force no longer than the key that has made it, of which the settings keep no record."""
        if share.by != IN_SETTINGS:
            key = await self._records.find(share.by)
            why = "revoked" if key is None else key.declared.shares(share.made_at_ms, self._clock.now_ms())
            if why is not None:
                raise _refusal(why, share.by)
        return share.caller()


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


def _refusal(why: Refused, known_as: str = "") -> Problem:
    detail, reason = _SAID[why]
    return Problem("unauthenticated", detail.format(id=known_as), reason=reason)
