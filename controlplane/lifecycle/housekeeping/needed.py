"""``Needs``: which images sandboxes and pools need, so that no clean-up removes them."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Final, Protocol

from controlplane.cluster import NodeImage
from controlplane.cluster.documents import Documents
from controlplane.images import FORMS, PrivateRegistry, Reference, parse
from controlplane.lifecycle.pools.declared import declared
from controlplane.lifecycle.record.recovering_store import RecoveringStore
from controlplane.model import LIVE

# Stands for the tag of what a store has by its digest alone.
_BY_DIGEST: Final = ""
# The image's own digest, and that of the copy that has run.
_WITH_COPY: Final = 2


class Names(Protocol):
    """The part of ``Images`` that is asked."""

    def pulled(self, name: str) -> str:
        """The name under which an image is pulled."""
        ...


class Needed:
    """The images that sandboxes and pools need: their digests, and the names of those whose digest is not known.

    A node knows what was pulled by a digest by no tag. So where only a tag is known, all that the node has of its
    repository without a tag may be meant, also as copies in the private registry.

    Args:
        private: the private registry; None: there is none.
    """

    def __init__(self, private: PrivateRegistry | None = None) -> None:
        self._private = private
        self._digests: dict[str, str] = {}
        self._names: dict[tuple[str, str], str] = {}

    def add(self, why: str, name: str, digests: Iterable[str] = ()) -> None:
        """Adds what needs an image.

        Args:
            why: what, for people.
            name: of the image, as it is pulled.
            digests: by which a node may have it, those of its copies among them; empty ones are left out.
        """
        known = {one for one in digests if one}
        reference = parse(name)
        if reference.digest:
            known.add(reference.digest)
        for one in known:
            self._digests.setdefault(one, why)
        if not known:
            self._names.setdefault((reference.name, reference.tag), why)
            self._names.setdefault((reference.name, _BY_DIGEST), why)
        # A copy has a digest of its own, which is known only of one that has run.
        if self._private is not None and not self._private.holds(reference) and len(known) < _WITH_COPY:
            for form in FORMS:
                copies = f"{self._private.host}/{self._private.repository(reference, form)}"
                self._names.setdefault((copies, _BY_DIGEST), why)

    def why(self, image: NodeImage, sources: Iterable[str] = ()) -> Sequence[str]:
        """What needs an image; one reason is enough.

        Args:
            image: of a node, or of the private registry.
            sources: the digests that a copy was made of, all of whose forms are needed with it.
        """
        references = [one for one in map(_read, image.names) if one is not None]
        digests = {image.digest, *sources, *(one.digest for one in references)}
        found = [self._digests[one] for one in digests if one in self._digests]
        # One that has a tag is meant by that alone.
        for one in [tagged for tagged in references if tagged.tag] or references:
            key = (one.name, one.tag or _BY_DIGEST)
            found += [self._names[key]] if key in self._names else []
        return found[:1] or ([f"{image.containers} containers"] if image.containers else [])


class Needs:
    """Reads what is needed.

    Args:
        store: has the sandboxes.
        documents: has the pools.
        names: says under which name an image is pulled.
        private: the private registry, in which images have other names; None: there is none.
    """

    def __init__(
        self, store: RecoveringStore, documents: Documents, names: Names, private: PrivateRegistry | None
    ) -> None:
        self._store = store
        self._documents = documents
        self._names = names
        self._private = private

    async def now(self) -> Needed:
        """What is needed now. A group counts by its sandboxes.

        Raises:
            Problem: it cannot be read.
        """
        needed = Needed(self._private)
        # A pool that was declared anew has sandboxes of another image still.
        pooled: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
        for sandbox in await self._store.find(None, {}, LIVE):
            digests = (sandbox.image_digest, sandbox.image_ran)
            needed.add(f"sandbox {sandbox.id}", self._names.pulled(sandbox.spec.image), digests)
            if sandbox.pool:
                pooled[sandbox.pool, sandbox.spec.image].update(digests)
        for pool in map(declared, await self._documents.list("pools")):
            if pool.spec is not None:
                image = pool.spec.template.image
                needed.add(f"pool {pool.name}", self._names.pulled(image), pooled[pool.name, image])
        return needed


def _read(name: str) -> Reference | None:
    try:
        return parse(name)
    except ValueError:
        return None
