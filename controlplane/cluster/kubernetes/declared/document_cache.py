"""Caches the watched documents, and wakes their watchers when a body has changed."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence

from controlplane.cluster.documents import Document
from controlplane.cluster.kubernetes.api_server.client import Json
from controlplane.cluster.kubernetes.declared import agent_sandbox


def document(thing: Json) -> Document:
    """A custom resource of rollbox as a document. Pure."""
    about = thing.get("metadata") or {}
    version = f"{about.get('uid', '')}.{about.get('generation', 0)}"
    return Document(str(about.get("name")), version, thing.get("spec") or {}, thing.get("status") or {})


class ObjectCache:
    """A mirror of one kind of object, by name; ``known`` is None until the first list was received."""

    def __init__(self, changed: Callable[[], None]) -> None:
        self.known: dict[str, Json] | None = None
        self._changed = changed

    def replace(self, objects: Sequence[Json]) -> None:
        """See ``Mirror.replace``."""
        self.known = {one["metadata"]["name"]: one for one in objects}
        self._changed()

    def put(self, thing: Json) -> None:
        """See ``Mirror.put``."""
        self.known = {**(self.known or {}), thing["metadata"]["name"]: thing}
        self._changed()

    def remove(self, thing: Json) -> None:
        """See ``Mirror.remove``."""
        gone = thing["metadata"]["name"]
        self.known = {name: one for name, one in (self.known or {}).items() if name != gone}
        self._changed()


class AgentSandboxPools:
    """The pools that are declared as objects of kubernetes-sigs/agent-sandbox."""

    def __init__(self) -> None:
        self.changed: Callable[[], None] | None = None
        self.templates = ObjectCache(self._notify)
        self.warm_pools = ObjectCache(self._notify)

    def documents(self) -> dict[str, Document] | None:
        """The pools by name; None until both lists were received, since a missing pool would be taken for removed."""
        templates, warm_pools = self.templates.known, self.warm_pools.known
        if templates is None or warm_pools is None:
            return None
        return {name: agent_sandbox.pool(one, templates) for name, one in warm_pools.items()}

    def _notify(self) -> None:
        if self.changed is not None:
            self.changed()


class DocumentCache:
    """The documents of one kind.

    Args:
        adopted: pools of agent-sandbox; a ``SandboxPool`` with the same name has priority.
    """

    def __init__(self, adopted: AgentSandboxPools | None = None) -> None:
        self.ours = ObjectCache(self._compare)
        self._adopted = adopted
        self._told: dict[str, str] | None = None
        self._watchers: set[asyncio.Event] = set()
        if adopted is not None:
            adopted.changed = self._compare

    @property
    def adopted(self) -> dict[str, Document]:
        """The pools of agent-sandbox that are known."""
        return (self._adopted.documents() if self._adopted else None) or {}

    def all(self) -> Mapping[str, Document] | None:
        """All documents by name; None until the first lists were received."""
        adopted = {} if self._adopted is None else self._adopted.documents()
        if self.ours.known is None or adopted is None:
            return None
        return adopted | {name: document(one) for name, one in self.ours.known.items()}

    async def watch(self) -> AsyncIterator[Sequence[Document]]:
        """See ``Documents.watch``; yields nothing until the first lists were received."""
        changed = asyncio.Event()
        self._watchers.add(changed)
        try:
            while True:
                changed.clear()
                if (everything := self.all()) is not None:
                    yield [one for _, one in sorted(everything.items())]
                await changed.wait()
        finally:
            self._watchers.discard(changed)

    def _compare(self) -> None:
        everything = self.all()
        versions = None if everything is None else {name: one.version for name, one in everything.items()}
        if versions != self._told:
            self._told = versions
            for changed in self._watchers:
                changed.set()
