"""Lists of sandboxes: what is asked for, and its pages. Pure."""

from __future__ import annotations

import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as NotBase64
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final, NamedTuple
from urllib.parse import parse_qsl

from rollbox import SandboxRecord
from rollbox_bridges.e2b.records import started_at_ms, template_of
from rollbox_bridges.e2b.words import Refusal

_MOST_PAGE: Final = 100
_LIMIT: Final = re.compile(r"[0-9]{1,3}")
_STATES: Final = frozenset({"running", "paused"})
_ORDERS: Final = frozenset({"asc", "desc"})
_KNOWN: Final = frozenset({"metadata", "state", "template", "order", "startedAfter", "nextToken", "limit"})


@dataclass(frozen=True, slots=True, kw_only=True)
class ListWish:
    """What a list is asked for.

    Attributes:
        labels: that its sandboxes have.
        running: whether it may have those that run, which all do here.
        template: of its sandboxes; "": any.
        from_ms: when the first of them began to run.
        ascending: whether the oldest comes first.
        limit: how many a page has.
        token: of the page before; "": it is the first one.
    """

    labels: Mapping[str, str] = field(default_factory=dict)
    running: bool = True
    template: str = ""
    from_ms: float = 0
    ascending: bool = False
    limit: int = _MOST_PAGE
    token: str = ""


class Page(NamedTuple):
    """Some of the sandboxes of a list, and the token of the next ones; "" after the last."""

    records: Sequence[SandboxRecord]
    next_token: str


def wish_of(query: Mapping[str, str], states: Iterable[str]) -> ListWish:
    """Read the query of a list.

    Args:
        query: its first values.
        states: all its values of `state`.

    Raises:
        Refusal: it is malformed, or has a parameter that would be ignored.
    """
    if unknown := sorted({*query} - _KNOWN):
        raise Refusal(400, f"a list has no {unknown[0][:100]!r}: there are {', '.join(sorted(_KNOWN))}")
    several = {one for text in states for one in text.split(",") if one}
    return ListWish(
        labels=_labels(query.get("metadata", "")),
        running=not several or "running" in _among("state", several, _STATES),
        template=query.get("template", ""),
        from_ms=_from_ms(query.get("startedAfter", "")),
        ascending="asc" in _among("order", {query.get("order", "desc")}, _ORDERS),
        limit=_limit(query.get("limit", str(_MOST_PAGE))),
        token=query.get("nextToken", ""),
    )


def found(records: Iterable[SandboxRecord], wish: ListWish) -> list[SandboxRecord]:
    """Those of the records that a list has, in its order."""
    if not wish.running:
        return []
    kept = [
        one
        for one in records
        if one.state == "running" and wish.template in {"", template_of(one)} and started_at_ms(one) >= wish.from_ms
    ]
    return sorted(kept, key=lambda one: _place(one.created_at_ms, one.id, wish))


def page(records: Sequence[SandboxRecord], wish: ListWish) -> Page:
    """Cut a page from the sandboxes of a list.

    Args:
        records: as `found` has them.
        wish: of the list.

    Raises:
        Refusal: the token is none of these.
    """
    after = _place(*_position(wish.token), wish) if wish.token else None
    rest = [one for one in records if after is None or _place(one.created_at_ms, one.id, wish) > after]
    cut = rest[: wish.limit]
    return Page(cut, _token(cut[-1]) if len(rest) > wish.limit else "")


def _among(name: str, given: set[str], known: frozenset[str]) -> set[str]:
    if unknown := sorted(given - known):
        raise Refusal(400, f"{name} {unknown[0][:100]!r} is none of {', '.join(sorted(known))}")
    return given


def _labels(text: str) -> dict[str, str]:
    """The metadata, a query within the query."""
    try:
        return dict(parse_qsl(text, keep_blank_values=True, strict_parsing=True)) if text else {}
    except ValueError as error:
        raise Refusal(400, f"metadata {text[:200]!r} is not of the form key=value&key=value: {error}") from error


def _from_ms(text: str) -> float:
    if not text:
        return 0
    try:
        at = datetime.fromisoformat(text)
        return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1000
    except (ValueError, OverflowError) as error:
        raise Refusal(400, f"startedAfter {text[:100]!r} is no time like 2026-11-30T12:00:00Z: {error}") from error


def _limit(text: str) -> int:
    if not _LIMIT.fullmatch(text) or not 1 <= int(text) <= _MOST_PAGE:
        raise Refusal(400, f"limit {text[:20]!r} is not a number from 1 to {_MOST_PAGE}")
    return int(text)


def _place(created_at_ms: int, sandbox_id: str, wish: ListWish) -> tuple[int, str]:
    return (created_at_ms if wish.ascending else -created_at_ms, sandbox_id)


def _token(record: SandboxRecord) -> str:
    return urlsafe_b64encode(f"{record.created_at_ms} {record.id}".encode()).decode()


def _position(token: str) -> tuple[int, str]:
    try:
        created_at_ms, _, sandbox_id = urlsafe_b64decode(token).decode().partition(" ")
        return int(created_at_ms), sandbox_id
    except (NotBase64, ValueError) as error:
        raise Refusal(400, f"nextToken {token[:100]!r} is none that a list has given") from error
