"""A key as it is on record, and what becomes of it. Pure."""

import hmac
from dataclasses import dataclass
from typing import Annotated, Final, Literal, Self

from pydantic import Field, StringConstraints, ValidationError

from controlplane.access import Scope, digest
from controlplane.cluster.documents import Document
from controlplane.errors import Problem
from controlplane.model.base import Closed

# Why a key is refused.
Refused = Literal["unknown", "expired", "revoked"]
State = Literal["valid", "expired", "revoked"]

KEY_NAME: Final = r"^[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$"
_DIGEST: Final = r"^[0-9a-f]{64}$"
Digest = Annotated[str, StringConstraints(pattern=_DIGEST)]
AtMs = Annotated[int, Field(ge=0)]


class DeclaredKey(Closed):
    """A key as it is declared in the cluster; its name there is its id.

    Attributes:
        name: for people; of an owner's valid keys no two have the same.
        digest: of the text, which is nowhere.
        made_by: the id of the key that made it.
        previous_digest: of the text before the last rotation; it holds until ``previous_until_ms``.
    """

    owner: Annotated[str, StringConstraints(min_length=1, max_length=128)]
    name: Annotated[str, StringConstraints(pattern=KEY_NAME)]
    scopes: Annotated[list[Scope], Field(min_length=1)]
    digest: Digest
    made_at_ms: AtMs
    made_by: str
    expires_at_ms: AtMs | None = None
    revoked_at_ms: AtMs | None = None
    rotated_at_ms: AtMs | None = None
    previous_digest: Digest | None = None
    previous_until_ms: AtMs = 0

    def state(self, now_ms: int) -> State:
        """Whether it is in force."""
        if self.revoked_at_ms is not None:
            return "revoked"
        return "valid" if self.expires_at_ms is None or now_ms < self.expires_at_ms else "expired"

    def ended_before(self, at_ms: int) -> bool:
        """Whether it was in force no more at a time (Unix ms)."""
        ends = [one for one in (self.revoked_at_ms, self.expires_at_ms) if one is not None]
        return bool(ends) and min(ends) <= at_ms

    def shares(self, made_at_ms: int, now_ms: int) -> Refused | None:
        """Why what was shared with this key is refused; None: it is in force.

        Args:
            made_at_ms: when it was shared, to the second (Unix ms). What the text before a rotation has shared
                ends with that text.
            now_ms: Unix ms.
        """
        if (state := self.state(now_ms)) != "valid":
            return state
        rotated = self.rotated_at_ms is not None and made_at_ms < self.rotated_at_ms
        return "expired" if rotated and self.previous_until_ms <= now_ms else None

    def refused(self, text: str, now_ms: int) -> Refused | None:
        """Why a text is refused as this key; None: it is this key, and in force.

        Only who has the text is told that it is expired or revoked.
        """
        given = digest(text)
        current = hmac.compare_digest(given, self.digest)
        previous = hmac.compare_digest(given, self.previous_digest or "")
        if not (current or previous):
            return "unknown"
        state = self.state(now_ms)
        if state != "valid":
            return state
        return None if current or now_ms < self.previous_until_ms else "expired"

    def rotated(self, fresh: str, now_ms: int, grace_ms: int) -> Self:
        """The key with another text; the text before holds for ``grace_ms`` more.

        A key that expires lives as long again as it was to live from when it was made, or rotated last.
        """
        began_ms = self.rotated_at_ms or self.made_at_ms
        expires_at_ms = None if self.expires_at_ms is None else now_ms + self.expires_at_ms - began_ms
        change = {
            "digest": digest(fresh),
            "previous_digest": self.digest,
            "previous_until_ms": now_ms + grace_ms,
            "rotated_at_ms": now_ms,
            "expires_at_ms": expires_at_ms,
        }
        return self.model_copy(update=change)

    def revoked(self, now_ms: int) -> Self:
        """The key, in force no more."""
        return self if self.revoked_at_ms is not None else self.model_copy(update={"revoked_at_ms": now_ms})


@dataclass(frozen=True, slots=True)
class StoredKey:
    """A key with its place.

    Attributes:
        version: of the document, for changes.
        used_at_ms: when it was used last, to the hour (Unix ms); None: not yet, or nobody knows.
    """

    id: str
    version: str
    declared: DeclaredKey
    used_at_ms: int | None = None


def stored(document: Document) -> StoredKey | None:
    """Reads a document; None: it is no key, and opens nothing."""
    try:
        declared = DeclaredKey.model_validate(dict(document.body))
    except ValidationError:
        return None
    used = document.status.get("used_at_ms")
    return StoredKey(document.name, document.version, declared, used if isinstance(used, int) else None)


def missing(key_id: str) -> Problem:
    """What a caller is told of a key that is not there, or is another owner's."""
    return Problem("not_found", f"there is no key {key_id[:64]!r}; `rollbox key list` shows them", key_id=key_id[:64])
