"""The caller of a request: the owner of the key that it has shown, and what the key allows."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from controlplane.access.scopes import MEANINGS, SCOPES, Scope
from controlplane.errors import Problem

# The id of keys that the settings (the chart's Secret) name: these have no record.
IN_SETTINGS: Final = "settings"
# What a key of the settings allows its owner; those of operators allow all.
EVERY: Final[frozenset[Scope]] = frozenset({"read", "run", "images", "egress", "keys"})
# What a scope includes beside itself. Every key reads: who may change a thing may see it.
_INCLUDES: Final[dict[Scope, frozenset[Scope]]] = {"operator": frozenset({"pools", "keys"})}


@dataclass(frozen=True, slots=True)
class Caller:
    """The owner and the rights of the key of one request.

    Attributes:
        owner: whose key it is.
        key_id: which key it is; ``IN_SETTINGS``: one of the settings.
        scopes: as the key has them.
        expires_at_ms: when the key expires (Unix ms); None: never.
        only_sandbox: the one sandbox that it opens, of a shared key; None: it is no shared one.
    """

    owner: str
    key_id: str
    scopes: frozenset[Scope]
    expires_at_ms: int | None = None
    only_sandbox: str | None = None

    @property
    def operates(self) -> bool:
        """Whether the key is an operator's."""
        return "operator" in self.scopes

    def may(self, scope: Scope) -> bool:
        """Whether the key allows what needs ``scope``."""
        return scope == "read" or scope in self.scopes or any(scope in _INCLUDES.get(one, ()) for one in self.scopes)

    def need(self, scope: Scope) -> None:
        """Refuses a caller without a scope.

        Raises:
            Problem: permission_denied, with the scope that is missing and those that the key has.
        """
        if self.may(scope):
            return
        held = ", ".join(one for one in SCOPES if one in self.scopes)
        detail = (
            f"the key {self.key_id} of {self.owner} has the scopes {held}, and this needs {scope} ({MEANINGS[scope]})"
        )
        raise Problem("permission_denied", detail, reason="scope", scope=scope, key_id=self.key_id, owner=self.owner)


def gives(maker: Caller, owner: str, scopes: Collection[Scope], expires_at_ms: int | None) -> None:
    """Refuses a key that allows more than the key that makes it, or for longer.

    Args:
        maker: the caller that makes it.
        owner: whose it is to be.
        scopes: what it is to allow.
        expires_at_ms: when it is to expire (Unix ms); None: never.

    Raises:
        Problem: permission_denied.
    """
    if owner != maker.owner and not maker.operates:
        detail = f"the key {maker.key_id} is {maker.owner}'s, and only an operator's makes keys of others"
        raise Problem("permission_denied", detail, owner=maker.owner)
    if not maker.operates:
        for scope in SCOPES:
            if scope in scopes:
                maker.need(scope)
    if maker.expires_at_ms is not None and (expires_at_ms is None or expires_at_ms > maker.expires_at_ms):
        detail = f"the key {maker.key_id} expires before the key that it is to make: give that a nearer expiry"
        raise Problem("permission_denied", detail, key_id=maker.key_id, expires_at_ms=maker.expires_at_ms)
