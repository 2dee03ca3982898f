"""The contexts of E2B's code interpreter in one sandbox: interpreters of rollbox, by id."""

from __future__ import annotations

import asyncio
import secrets
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from rollbox import Interpreter, Sandbox, SandboxError
from rollbox_bridges.e2b.words import Refusal, unsupported

_LANGUAGES: Final[dict[str, Literal["python", "node"]]] = {"python": "python", "javascript": "node", "js": "node"}
_MOST: Final = 64


@dataclass(slots=True)
class Context:
    """One interpreter.

    Attributes:
        id, language, cwd: as told to clients.
        interpreter: that runs its cells.
        turn: of a cell that has variables of its own.
    """

    id: str
    language: str
    cwd: str
    interpreter: Interpreter = field(repr=False)
    turn: asyncio.Lock = field(default_factory=asyncio.Lock, repr=False)

    def to_json(self) -> dict[str, str]:
        """The wire form."""
        return {"id": self.id, "language": self.language, "cwd": self.cwd}


class Contexts:
    """The contexts of one sandbox; the one of a language that nobody has made is made with its first cell.

    They end with the bridge: its clients are told that there is no such context then.

    Args:
        sandbox: that they run in.
    """

    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox = sandbox
        self._kept: dict[str, Context] = {}
        self._defaults: dict[str, Context] = {}

    async def create(self, language: Any, cwd: Any) -> Context:  # noqa: ANN401 - JSON
        """Make one.

        Raises:
            Refusal: there is no such language, or there are too many.
            SandboxError: as `Sandbox.interpreter`.
        """
        name = _language(language)
        if cwd is not None and not isinstance(cwd, str):
            raise Refusal(400, f"cwd {cwd!r} is not text")
        if len(self._kept) >= _MOST:
            raise Refusal(429, f"there are {_MOST} contexts in this sandbox: remove one")
        interpreter = await self._sandbox.interpreter(_LANGUAGES[name], cwd=cwd or None)
        made = Context(secrets.token_hex(8), name, cwd or "", interpreter)
        self._kept[made.id] = made
        return made

    async def default(self, language: Any) -> Context:  # noqa: ANN401 - JSON
        """The one for cells that name none."""
        name = _language(language)
        if name not in self._defaults:
            made = await self.create(name, None)
            if self._defaults.setdefault(name, made) is not made:
                await self.remove(made.id)
        return self._defaults[name]

    def list(self) -> list[Context]:
        """All there are."""
        return list(self._kept.values())

    def find(self, name: str) -> Context:
        """The one of this id.

        Raises:
            Refusal: there is none.
        """
        found = self._kept.get(name)
        if found is None:
            raise Refusal(404, f"context {name[:64]!r} does not exist: it was removed, or the bridge restarted")
        return found

    async def remove(self, name: str) -> None:
        """End one.

        Raises:
            Refusal: there is none.
        """
        found = self.find(name)
        del self._kept[name]
        if self._defaults.get(found.language) is found:
            del self._defaults[found.language]
        await found.interpreter.aclose()

    async def aclose(self) -> None:
        """End all."""
        kept, self._kept, self._defaults = self._kept, {}, {}
        for one in kept.values():
            # Of an ended sandbox nothing is left to close.
            with suppress(SandboxError):
                await one.interpreter.aclose()


def _language(value: Any) -> str:  # noqa: ANN401 - JSON
    name = "python" if value is None else str(value).lower()
    if name not in _LANGUAGES:
        raise unsupported(f"the language {name[:40]!r}", f"There are {', '.join(_LANGUAGES)}.")
    return {"js": "javascript"}.get(name, name)
