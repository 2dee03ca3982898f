"""API keys of an owner. Pure: arguments to request bodies, JSON to values."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Final, Literal, TypeAlias, get_args

from rollbox import request
from rollbox.errors import InvalidArgument

Scope = Literal["read", "run", "images", "egress", "pools", "keys", "operator"]
SCOPES: Final[tuple[str, ...]] = get_args(Scope)
Duration: TypeAlias = float | str

_UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_DURATION: Final = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,3})?)([smhd]?)")


@dataclass(frozen=True, slots=True)
class ApiKey:
    """A key without its text, which nobody can read again.

    Attributes:
        id: also a part of the key's text: rbxk_ID_...
        name: for people; of an owner's valid keys no two have the same.
        owner: whose sandboxes it is for.
        scopes: what it allows; see `Client.create_key`.
        state: "valid", "expired" or "revoked".
        made_at_ms: Unix ms, as all times.
        made_by: the id of the key that made it; "settings": one of the installation's settings.
        expires_at_ms: None: it never expires.
        rotated_at_ms: when it got its text, if that is not its first.
        used_at_ms: its last use, to the hour; None: none is known.
    """

    id: str
    name: str
    owner: str
    scopes: tuple[str, ...] = ()
    state: str = "valid"
    made_at_ms: int = 0
    made_by: str = ""
    expires_at_ms: int | None = None
    rotated_at_ms: int | None = None
    revoked_at_ms: int | None = None
    used_at_ms: int | None = None

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> ApiKey:
        """Read the wire form; fields that this version does not know are left out."""
        return cls(**_known(body))

    def to_json(self) -> dict[str, Any]:
        """Return all fields as JSON."""
        return {**asdict(self), "scopes": list(self.scopes)}


@dataclass(frozen=True, slots=True)
class NewApiKey:
    """A key and its text: keep the text now, no later call returns it. `repr` does not have it."""

    record: ApiKey
    text: str = field(repr=False)

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> NewApiKey:
        """Read the wire form."""
        return cls(ApiKey.from_json(body), str(body["key"]))


@dataclass(frozen=True, slots=True)
class SharedKey:
    """A key that opens one sandbox, to hand to somebody who has no key of its owner. `repr` does not have it.

    Attributes:
        sandbox_id: the one that it opens.
        key: for `Client(url, key)` and ROLLBOX_API_KEY.
        expires_at_ms: Unix ms after which it opens nothing, also where the sandbox lives on.
    """

    sandbox_id: str
    key: str = field(repr=False)
    expires_at_ms: int = 0

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> SharedKey:
        """Read the wire form."""
        return cls(**{item.name: body[item.name] for item in fields(cls)})

    def to_json(self) -> dict[str, Any]:
        """Return all fields as JSON, the key among them."""
        return asdict(self)


ApiKeyList: TypeAlias = list[ApiKey]


def key_body(name: str, scopes: Iterable[str], expires: Duration | None, owner: str | None) -> dict[str, Any]:
    """Build the body that makes a key.

    Args:
        name: for people.
        scopes: what it allows; one alone may be a text.
        expires: after which it ends; None: never.
        owner: whose it is; None: the caller's.

    Raises:
        InvalidArgument: one of them is none.
    """
    wanted = [scopes] if isinstance(scopes, str) else list(scopes)
    if not wanted or (unknown := next((one for one in wanted if one not in SCOPES), None)) is not None:
        told = "no scope is given" if not wanted else f"there is no scope {unknown!r}"
        raise InvalidArgument(f"{told}: give some of {', '.join(SCOPES)}")
    expires_in_ms = None if expires is None else duration_ms("expires", expires)
    body: dict[str, Any] = {"name": request.text("the name of a key", name), "scopes": wanted}
    return body | {"expires_in_ms": expires_in_ms} | ({} if owner is None else {"owner": owner})


def duration_ms(name: str, given: Duration) -> int:
    """Read a duration: seconds, or a text like "90s", "15m", "12h" or "30d"; returns milliseconds.

    Raises:
        InvalidArgument: it is none; the message names `name`.
    """
    found = _DURATION.fullmatch(str(given)) if not isinstance(given, bool) else None
    if found is None:
        raise InvalidArgument(f"{name} {given!r} is no duration: give seconds, or a text like '15m', '12h' or '30d'")
    return round(float(found[1]) * _UNITS[found[2] or "s"] * 1000)


def _known(body: Mapping[str, Any]) -> dict[str, Any]:
    known = {item.name: body[item.name] for item in fields(ApiKey) if item.name in body}
    return {**known, "scopes": tuple(known.get("scopes", ()))}
