"""Declared objects on one machine: in a JSON file in the state directory, or in memory only."""

import asyncio
import json
import os
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any, Final

from controlplane.cluster.documents import KINDS, Body, Document, Kind, conflict
from controlplane.errors import Problem

# File name in the state directory.
FILE: Final = "documents.json"


class FileDocuments:
    """See ``Documents``. Reads and writes block the event loop, which is acceptable: the file is local and small.

    Args:
        path: the file; None: documents are kept in memory only.

    Raises:
        Problem: internal, the file is damaged or cannot be read.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._all: dict[Kind, dict[str, Document]] = {kind: {} for kind in KINDS}
        self._revision = 0
        self._watchers: dict[Kind, set[asyncio.Event]] = {kind: set() for kind in KINDS}
        if path is not None:
            self._read(path)

    async def put(self, kind: Kind, name: str, body: Body, expected: str | None = None) -> str:
        """See ``Documents.put``."""
        before = self._all[kind].get(name)
        found = None if before is None else before.version
        if expected is not None and expected != (found or ""):
            raise conflict(kind, name, expected, found)
        version = str(self._revision + 1)
        plain = json.loads(json.dumps(body))
        self._store(kind, {**self._all[kind], name: Document(name, version, plain, before.status if before else {})})
        return version

    async def get(self, kind: Kind, name: str) -> Document | None:
        """See ``Documents.get``."""
        return self._all[kind].get(name)

    async def list(self, kind: Kind) -> Sequence[Document]:
        """See ``Documents.list``."""
        return self._sorted(kind)

    async def remove(self, kind: Kind, name: str) -> bool:
        """See ``Documents.remove``."""
        if name not in self._all[kind]:
            return False
        self._store(kind, {known: one for known, one in self._all[kind].items() if known != name})
        return True

    async def watch(self, kind: Kind) -> AsyncIterator[Sequence[Document]]:
        """See ``Documents.watch``."""
        changed = asyncio.Event()
        self._watchers[kind].add(changed)
        try:
            while True:
                changed.clear()
                yield self._sorted(kind)
                await changed.wait()
        finally:
            self._watchers[kind].discard(changed)

    async def status(self, kind: Kind, name: str, body: Body) -> None:
        """See ``Documents.status``; not written to the file, since after a restart the status is computed anew."""
        before = self._all[kind].get(name)
        if before is not None:
            self._all[kind][name] = Document(name, before.version, before.body, json.loads(json.dumps(body)))

    def _sorted(self, kind: Kind) -> Sequence[Document]:
        return [one for _, one in sorted(self._all[kind].items())]

    def _store(self, kind: Kind, of_kind: dict[str, Document]) -> None:
        everything = {**self._all, kind: of_kind}
        if self._path is not None:
            _replace(self._path, _text(self._revision + 1, everything))
        # After the write: if that fails, nothing was declared.
        self._all, self._revision = everything, self._revision + 1
        for changed in self._watchers[kind]:
            changed.set()

    def _read(self, path: Path) -> None:
        try:
            content = json.loads(path.read_bytes())
            self._revision = int(content["revision"])
            for kind in KINDS:
                for name, (version, body) in content.get(kind, {}).items():
                    self._all[kind][name] = Document(name, str(version), dict(body))
        except FileNotFoundError:
            return
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            detail = f"{path} does not hold the declared pools and quotas ({error}): move it away or put it right"
            raise Problem("internal", detail) from error


def _text(revision: int, everything: dict[Kind, dict[str, Document]]) -> bytes:
    content: dict[str, Any] = {"revision": revision}
    for kind, of_kind in everything.items():
        content[kind] = {name: [one.version, one.body] for name, one in sorted(of_kind.items())}
    return json.dumps(content, indent=1).encode()


def _replace(path: Path, content: bytes) -> None:
    fresh = path.with_name(f".{path.name}.fresh")
    try:
        fresh.unlink(missing_ok=True)
        descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        fresh.replace(path)
    except OSError as error:
        raise Problem("internal", f"{path} cannot be written: {error}") from error
