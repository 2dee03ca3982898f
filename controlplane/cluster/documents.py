"""Declared objects: pools, quotas, egress presets, data sets, API keys. The cluster is the source of truth.

A document has a name, a body with what was declared, and a status that the platform writes. Readers must validate the
body: on Kubernetes it can be written with kubectl, past the API's validation. Every implementation passes
``tests/contract/documents_suite.py``. Every failure is a ``Problem``.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, Protocol

from controlplane.errors import Problem

Kind = Literal["pools", "quotas", "egress", "datasets", "keys"]
Body = Mapping[str, Any]

KINDS: Final[tuple[Kind, ...]] = ("pools", "quotas", "egress", "datasets", "keys")
# One of a kind, for people.
WORDS: Final[dict[Kind, str]] = {
    "pools": "pool",
    "quotas": "quota",
    "egress": "egress preset",
    "datasets": "data set",
    "keys": "API key",
}
# A value of ``expected``: the document must not exist yet.
NONE_YET: Final = ""


@dataclass(frozen=True, slots=True)
class Document:
    """One declared object.

    Attributes:
        version: changes with every change of the body, never repeats, and does not change with the status.
        body: what was declared, as JSON values.
        status: what the platform has written last; empty if nothing yet, or if it was lost.
        trouble: why the platform cannot honour it, where its source shows that; empty: no such reason is known.
    """

    name: str
    version: str
    body: Body
    status: Body = field(default_factory=dict)
    trouble: str = ""


class Documents(Protocol):
    """Stores documents where every replica finds them, also after a restart."""

    async def put(self, kind: Kind, name: str, body: Body, expected: str | None = None) -> str:
        """Creates a document, or replaces the body of an existing one; returns the new version.

        Args:
            kind: pools, quotas, presets of network policies (egress), data sets or API keys.
            name: the document's name.
            body: JSON values.
            expected: the version that the writer has read, or ``NONE_YET``; None: overwrites any version.

        Raises:
            Problem: conflict, if it has another version; invalid_argument, if the cluster refuses the name or the body.
        """
        ...

    async def get(self, kind: Kind, name: str) -> Document | None:
        """One document; None if there is none."""
        ...

    async def list(self, kind: Kind) -> Sequence[Document]:
        """All documents of a kind, sorted by name."""
        ...

    async def remove(self, kind: Kind, name: str) -> bool:
        """Removes one; returns whether it existed."""
        ...

    def watch(self, kind: Kind) -> AsyncIterator[Sequence[Document]]:
        """Yields all documents now, and again whenever one was declared, changed or removed; without end.

        It reconnects by itself. Changes in quick succession are yielded together; changes of a status are not yielded.
        """
        ...

    async def status(self, kind: Kind, name: str, body: Body) -> None:
        """Writes a document's status; does nothing if it does not exist or its status cannot be written now."""
        ...


def conflict(kind: Kind, name: str, expected: str, found: str | None) -> Problem:
    """The error for a writer that has not read the newest version.

    Args:
        kind: of the document, a plural.
        name: of the document.
        expected: the version that the writer has read; empty where it expected none to exist.
        found: the version that exists; None when there is none.

    Returns:
        a ``conflict`` with these as details.
    """
    there = "there is none" if found is None else "there is one already" if not expected else f"it is {found} now"
    detail = f"{WORDS[kind]} {name!r} was changed meanwhile: {there}; read it again and repeat"
    return Problem("conflict", detail, name=name, expected=expected, found=found)
