"""Requests as Go's servers read them: queries and bodies, in which nothing is ignored."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from aiohttp import web

from rollbox_bridges.docker.words import Refusal, not_honoured
from rollbox_bridges.strict_json import parsed

_MOST_BYTES: Final = 2**22
_NUMBER: Final = re.compile(r"-?[0-9]{1,9}")
_FALSE: Final = frozenset({"", "0", "no", "false", "none"})
_NOTHING: Final = _FALSE | {"{}", "[]", "null"}
_IGNORED: Final = "the bridge does not know it, and would ignore it"


class Query:
    """The query of a request.

    Args:
        request: it.
        known: names that are read.
        harmless: other names that change nothing here.
        reasons: why another one is not honoured.

    Raises:
        Refusal: another name has a value that asks for something.
    """

    def __init__(
        self,
        request: web.BaseRequest,
        known: frozenset[str],
        harmless: frozenset[str] = frozenset(),
        reasons: Mapping[str, str] | None = None,
    ) -> None:
        self._values = request.query
        for name, value in self._values.items():
            if name not in known | harmless and value.lower() not in _NOTHING:
                raise not_honoured(f"{name}={value[:100]}", (reasons or {}).get(name, _IGNORED))

    def flag(self, name: str, *, default: bool = False) -> bool:
        """Whether it is set."""
        value = self._values.get(name)
        return default if value is None else value.lower() not in _FALSE

    def text(self, name: str, default: str = "") -> str:
        """Its text."""
        return self._values.get(name, default)

    def texts(self, name: str) -> list[str]:
        """Its texts; names may come several times."""
        return [one for one in self._values.getall(name, []) if one]

    def json(self, name: str) -> Any:  # noqa: ANN401 - JSON
        """Its JSON; None where there is none.

        Raises:
            Refusal: it is no JSON.
        """
        text = self._values.get(name, "")
        try:
            return parsed(text) if text else None
        except ValueError as error:
            raise Refusal(400, f"{name} is no JSON: {error}") from error

    def whole(self, name: str, default: int, *, least: int = 0) -> int:
        """Its number.

        Raises:
            Refusal: it is none, or less than `least`.
        """
        text = self._values.get(name, "")
        if not text:
            return default
        if not _NUMBER.fullmatch(text):
            raise Refusal(400, f"{name}={text[:40]} is not a number")
        number = int(text)
        if number < least:
            raise Refusal(400, f"{name}={number} is less than {least}")
        return number

    def filters(self, known: frozenset[str]) -> dict[str, list[str]]:
        """The lists of `filters`, by name; older clients send objects whose keys are the entries.

        Raises:
            Refusal: they are malformed, or one is not known.
        """
        told: Any = self.json("filters") or {}
        if not isinstance(told, dict):
            raise Refusal(400, "filters is not a JSON object")
        for name in told:
            if name not in known:
                raise Refusal(400, f"invalid filter '{name[:100]}': there are {', '.join(sorted(known))}")
        return {name: [str(one) for one in values] for name, values in told.items() if isinstance(values, list | dict)}


async def json_body(request: web.BaseRequest) -> Any:  # noqa: ANN401 - JSON
    """The body of a request; None where there is none.

    Raises:
        Refusal: it is too long, or no JSON.
    """
    data = bytearray()
    async for part in request.content.iter_any():
        data += part
        if len(data) > _MOST_BYTES:
            raise Refusal(413, f"the body is over the {_MOST_BYTES} bytes that are taken")
    try:
        return parsed(data) if data.strip() else None
    except ValueError as error:
        raise Refusal(400, f"the body is no JSON: {error}") from error
