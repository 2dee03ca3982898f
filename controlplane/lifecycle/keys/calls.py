"""Makes, lists, rotates and revokes keys, for the API."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from controlplane.access import SCOPES, Caller, KeyText, Scope, digest, gives, new_key
from controlplane.clock import Clock
from controlplane.cluster.documents import NONE_YET, Documents
from controlplane.errors import Problem
from controlplane.lifecycle.keys.declared import DeclaredKey, StoredKey, missing
from controlplane.lifecycle.keys.stored import StoredKeys
from controlplane.telemetry import Metrics

# Of one owner, with those that are in force no more and still on record.
MOST_KEYS: Final = 200
# So long a key that is in force no more stays on record, so that its holder is told why it is refused.
KEPT_MS: Final = 30 * 24 * 3_600_000


@dataclass(frozen=True, slots=True)
class MadeKey:
    """A key with its text, which nobody sees again."""

    key: StoredKey
    text: str = field(repr=False)


class KeyCalls:
    """The calls. Each answers when its change is in force at every control plane within ``FRESH_S``."""

    def __init__(self, documents: Documents, keys: StoredKeys, clock: Clock, metrics: Metrics) -> None:
        self._documents, self._keys, self._clock, self._metrics = documents, keys, clock, metrics

    async def create(
        self, maker: Caller, name: str, scopes: Sequence[Scope], lives_ms: int | None, owner: str | None
    ) -> MadeKey:
        """Makes a key.

        Args:
            maker: the caller.
            name: for people.
            scopes: what it allows; none that its maker has not.
            lives_ms: after which it expires; None: never.
            owner: whose it is; None: its maker's.

        Raises:
            Problem: permission_denied, it would allow more than its maker's key; conflict, the owner has a valid key of
                this name; quota_exceeded; the cluster's or the store's.
        """
        now_ms, whose = self._clock.now_ms(), owner or maker.owner
        expires_at_ms = None if lives_ms is None else now_ms + lives_ms
        gives(maker, whose, scopes, expires_at_ms)
        await self._make_room(whose, name, now_ms)
        made = new_key()
        declared = DeclaredKey(
            owner=whose,
            name=name,
            scopes=[one for one in SCOPES if one in scopes],
            digest=digest(made.text),
            made_at_ms=now_ms,
            made_by=maker.key_id,
            expires_at_ms=expires_at_ms,
        )
        return MadeKey(await self._write(made.id, declared, NONE_YET), made.text)

    async def list(self, caller: Caller, owner: str | None) -> Sequence[StoredKey]:
        """An owner's keys, oldest first, also those that are in force no more.

        Raises:
            Problem: permission_denied, it is another owner and the caller no operator; the cluster's.
        """
        whose = owner or caller.owner
        if whose != caller.owner:
            caller.need("operator")
        found = [one for one in await self._keys.all() if one.declared.owner == whose]
        return sorted(found, key=lambda one: (one.declared.made_at_ms, one.id))

    async def rotate(self, caller: Caller, key_id: str, grace_ms: int) -> MadeKey:
        """Gives a key another text; the one before holds for ``grace_ms`` more.

        Raises:
            Problem: not_found; conflict, it is in force no more, or was changed meanwhile; permission_denied, it allows
                more than the caller's key, or would for longer; the cluster's or the store's.
        """
        key, now_ms = await self._own(caller, key_id), self._clock.now_ms()
        state = key.declared.state(now_ms)
        if state != "valid":
            raise Problem("conflict", f"the key {key_id} is {state}: make another one", key_id=key_id)
        fresh: KeyText = new_key(key_id)
        declared = key.declared.rotated(fresh.text, now_ms, grace_ms)
        gives(caller, declared.owner, declared.scopes, declared.expires_at_ms)
        return MadeKey(await self._write(key_id, declared, key.version), fresh.text)

    async def revoke(self, caller: Caller, key_id: str) -> StoredKey:
        """Ends a key at once. Repeating it is success.

        Raises:
            Problem: not_found; conflict, it was changed meanwhile; the cluster's or the store's.
        """
        key = await self._own(caller, key_id)
        # Also of one that is revoked: its first call may have failed before every process was told.
        return await self._write(key_id, key.declared.revoked(self._clock.now_ms()), key.version)

    async def _own(self, caller: Caller, key_id: str) -> StoredKey:
        found = next((one for one in await self._keys.all() if one.id == key_id), None)
        if found is None:
            raise missing(key_id)
        if found.declared.owner != caller.owner and not caller.operates:
            self._metrics.call_refused("other_owner")
            raise missing(key_id)
        return found

    async def _make_room(self, owner: str, name: str, now_ms: int) -> None:
        own = [one for one in await self._keys.all() if one.declared.owner == owner]
        valid = [one for one in own if one.declared.state(now_ms) == "valid"]
        if taken := next((one for one in valid if one.declared.name == name), None):
            detail = f"{owner} has a key {name} ({taken.id}): rotate it, revoke it, or choose another name"
            raise Problem("conflict", detail, key_id=taken.id)
        old = [one for one in own if one.declared.ended_before(now_ms - KEPT_MS)]
        for one in old:
            await self._documents.remove("keys", one.id)
        if (kept := len(own) - len(old)) >= MOST_KEYS:
            detail = (
                f"{owner} has {kept} keys on record, and no more than {MOST_KEYS} are kept; ended ones stay for 30 d"
            )
            raise Problem("quota_exceeded", detail, used=kept, limit=MOST_KEYS)

    async def _write(self, key_id: str, declared: DeclaredKey, expected: str) -> StoredKey:
        version = await self._documents.put("keys", key_id, declared.model_dump(mode="json"), expected)
        await self._keys.announce()
        return StoredKey(key_id, version, declared)
