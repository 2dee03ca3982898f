"""``Mirrored``: what a start is given in place of an image's own name where there is a private registry."""

from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager

from controlplane.errors import Problem
from controlplane.images import Form, Found, Keyrings, Mirror, PrivateRegistry, Reference, parse
from controlplane.lifecycle.images.copies import Copies, Copy


class Mirrored:
    """The private registry, as starts use it.

    Args:
        private: which one it is.
        mirror: knows what it has.
        copies: has images copied into it.
        keyrings: the credentials with which an image is copied.
        plain: registries that the mirror asks at loopback addresses too.
    """

    def __init__(
        self,
        private: PrivateRegistry,
        mirror: Mirror,
        copies: Copies,
        keyrings: Keyrings,
        plain: Collection[str] = (),
    ) -> None:
        self._plain = frozenset(plain)
        self._private = private
        self._mirror = mirror
        self._copies = copies
        self._keyrings = keyrings

    def close(self) -> None:
        """Breaks off all copies."""
        self._copies.close()

    def hides(self, reference: Reference) -> bool:
        """Whether no user may name this."""
        return self._private.hides(reference)

    def ready(self, name: str, *, resolved: bool) -> str:
        """The digest that nodes pull in place of this one if it was there a moment ago; empty: not known."""
        return self._copies.there(_source(name, resolved=resolved))

    def wants(self, name: str) -> bool:
        """Whether an image has to be copied before it is started: its name has a digest, and is not of here already.

        What only nodes reach is pulled from where it is: the mirror asks no loopback address of its own.
        """
        reference = parse(name)
        unreachable = reference.on_nodes_alone and reference.registry not in self._plain
        return bool(reference.digest) and not self._private.holds(reference) and not unreachable

    def holds(self, reference: Reference) -> bool:
        """Whether a name is of the private registry itself."""
        return self._private.holds(reference)

    def converts(self, name: str) -> bool:
        """Whether an image of the private registry itself may have a converted copy."""
        return self._private.converts(parse(name))

    def copy_of(self, name: str, digest: str, form: Form = "plain") -> str:
        """The name by which nodes pull the copy of an image."""
        return self._private.copy(parse(name), digest, form)

    @asynccontextmanager
    async def copying(self, name: str, owner: str, *, resolved: bool) -> AsyncIterator[Copy]:
        """The copy of an image, with the credentials of an owner who has the right to it.

        Args:
            name: with a digest.
            owner: who has the right.
            resolved: its registry has just said that its tag means this digest. Only then the mirror hears the tag,
                since all owners get what it knows a tag to mean: not what a user or an old record says.
        """
        source = _source(name, resolved=resolved)
        credentials = (await self._keyrings.of(owner)).find(source)
        async with self._copies.joined(source, credentials) as copy:
            yield copy

    async def last(self, reference: Reference) -> Found | None:
        """What a tag meant when it was copied last; None: it never was, or nobody can say."""
        if not reference.tag or self._private.holds(reference):
            return None
        try:
            found = await self._mirror.find(self._private.repository(reference), reference.tag)
        except Problem:
            return None
        if found is None or not found.named or not await self._copies.use(reference, found.digest):
            return None
        return found

    async def committed(self, reference: Reference) -> str:
        """The digest of an image that was made of a sandbox.

        Raises:
            Problem: image_not_found; image_pull_failed: the registry or its mirror does not answer.
        """
        repository = reference.name.partition("/")[2]
        found = await self._mirror.find(repository, reference.digest or reference.tag)
        if found is None:
            raise Problem("image_not_found", f"the private registry has no {reference}", option="image")
        return found.digest


def _source(name: str, *, resolved: bool) -> Reference:
    reference = parse(name)
    return reference if resolved else reference.untagged()
