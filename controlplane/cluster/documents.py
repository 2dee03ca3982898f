"""Declared objects: pools and quotas, as somebody has written them. The truth about them is the cluster's.

A document has a name, a body that its writer means, and a status that the platform writes beside it. Bodies are checked
by whoever reads them: on Kubernetes anybody with the right may write one past our API.
``tests/contract/documents_suite.py`` is what every implementation passes. Every failure is a ``Problem``.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, Protocol

from controlplane.errors import Problem

Kind = Literal["pools", "quotas"]
Body = Mapping[str, Any]

KINDS: Final[tuple[Kind, ...]] = ("pools", "quotas")
# As ``expected``: there must be none yet.
NONE_YET: Final = ""


@dataclass(frozen=True, slots=True)
class Document:
    """One declared object.

    Attributes:
        version: changes with the body and never comes back; a status changes nothing about it.
        body: what was declared, as JSON has it.
        status: what the platform has written last; empty when nothing yet, or not any more.
        trouble: why it cannot be honoured, where its place of origin shows that; empty: nothing is known against it.
    """

    name: str
    version: str
    body: Body
    status: Body = field(default_factory=dict)
    trouble: str = ""


class Documents(Protocol):
    """Keeps documents where every replica finds them, also after a restart."""

    async def put(self, kind: Kind, name: str, body: Body, expected: str | None = None) -> str:
        """Declares, or declares anew; the version.

        Args:
            kind: what it is.
            name: whose; replaced as a whole when there is one.
            body: JSON.
            expected: the version that the writer has seen, or ``NONE_YET``; None: whatever there is.

        Raises:
            Problem: conflict, it has another version; invalid_argument, the cluster refuses the name or the body.
        """
        ...

    async def get(self, kind: Kind, name: str) -> Document | None:
        """One, or None."""
        ...

    async def list(self, kind: Kind) -> Sequence[Document]:
        """All, by name."""
        ...

    async def remove(self, kind: Kind, name: str) -> bool:
        """Takes one back; whether there was one."""
        ...

    def watch(self, kind: Kind) -> AsyncIterator[Sequence[Document]]:
        """All of them now, and again whenever one was declared, changed or removed; without end.

        It reconnects by itself. Changes that come fast are told together; those of a status are not told.
        """
        ...

    async def status(self, kind: Kind, name: str, body: Body) -> None:
        """Writes what the platform says about it; nothing when there is none, or when it cannot be written now."""
        ...


def conflict(kind: Kind, name: str, expected: str, found: str | None) -> Problem:
    """What a writer gets that has not seen the newest version."""
    there = "there is none" if found is None else "there is one already" if not expected else f"it is {found} now"
    detail = f"{kind[:-1]} {name!r} was changed meanwhile: {there}; read it again and repeat"
    return Problem("conflict", detail, name=name, expected=expected, found=found)
