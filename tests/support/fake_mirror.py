"""A mirror in memory, and owners with credentials: what takes time, fails and is refused is told to them."""

import asyncio
from collections.abc import AsyncIterator, Collection, Mapping
from dataclasses import dataclass, field

from controlplane.errors import Problem
from controlplane.images import Converted, Copied, Copying, Credentials, Found, Keyring, Recorded, Reference
from controlplane.registry import MirrorAwayError
from tests.support.fake_registry import digest

LAYERS = 4


@dataclass
class FakeMirror:
    """Copies everything; of an image with the digest D it runs the digest of `ran D`."""

    takes_s: float = 0.0
    away: bool = False
    failure: Exception | None = None
    expired: Credentials | None = None
    there: dict[tuple[str, str], Found] = field(default_factory=dict)
    asked: list[tuple[str, Credentials | None]] = field(default_factory=list)
    broken_off: int = 0
    converts_s: float = 10.0
    finds_s: float = 0.0
    refusal: Problem | None = None
    lazy: dict[tuple[str, str], Converted] = field(default_factory=dict)
    conversions: list[str] = field(default_factory=list)
    # By repository, digest of the source, and whose it is.
    recorded: dict[tuple[str, str, str], Converted] = field(default_factory=dict)
    lists: list[tuple[str, ...]] = field(default_factory=list)  # of recorded copies, as they were made
    made: set[tuple[str, str]] = field(default_factory=set)  # recorded copies, by repository and digest
    architectures: tuple[str, ...] = ()  # of converted copies

    async def copy(
        self,
        source: Reference,
        credentials: Credentials | None,
        repository: str,
        architectures: Collection[str],
        *,
        through: str = "",
        no_room: bool = False,
        recorded: Recorded | None = None,
    ) -> AsyncIterator[Copying | Copied]:
        assert "amd64" in set(architectures)
        assert repository.startswith("estargz/") == bool(through)
        if self.away:
            raise MirrorAwayError("it is away")
        if through:
            async for told in self._convert(source, repository, through, recorded, no_room=no_room):
                yield told
            return
        self.asked.append((str(source), credentials))
        ran = digest(f"ran {source.digest}")
        if (there := self.there.get((repository, source.digest))) is not None:
            self._note(repository, source, there)
            yield Copied(there.digest, there=True)
            return
        if no_room:
            raise _full()
        try:
            for layer in range(LAYERS):
                yield Copying("copying", layer, LAYERS, layer, LAYERS)
                await asyncio.sleep(self.takes_s / LAYERS)
        except asyncio.CancelledError:
            self.broken_off += 1
            raise
        if self.expired is not None and credentials == self.expired:
            raise Problem("image_not_found", "its registry refuses these credentials")
        if self.failure is not None:
            raise self.failure
        self.there[repository, source.digest] = Found(ran, source.digest)
        self._note(repository, source, Found(ran, source.digest))
        yield Copied(ran, there=False)

    async def _convert(
        self, source: Reference, repository: str, through: str, recorded: Recorded | None, *, no_room: bool
    ) -> AsyncIterator[Copying | Copied]:
        if recorded is None and (there := self.lazy.get((repository, source.digest))) is not None:
            yield Copied(there.digest, there=True, architectures=self.architectures)
            return
        if no_room:
            raise _full()
        assert (through, source.digest) in self.there, "a conversion reads what the private registry has"
        self.conversions.append(str(source))
        for layer in range(LAYERS):
            yield Copying("converting", layer, LAYERS)
            await asyncio.sleep(self.converts_s / LAYERS)
        if self.refusal is not None:
            raise self.refusal
        made = Converted(digest(f"lazy {source.digest}" + ("" if recorded is None else f" {recorded}")))
        if recorded is None:
            self.lazy[repository, source.digest] = made
        else:
            self.lists.append(recorded.first)
            self.made.add((repository, made.digest))
        yield Copied(made.digest, there=False, architectures=self.architectures)

    async def converted(
        self, repository: str, source: str, architectures: Collection[str], whose: str = ""
    ) -> Converted | None:
        assert "amd64" in set(architectures)
        if self.away:
            raise MirrorAwayError("it is away")
        await asyncio.sleep(self.finds_s)
        if whose:
            return self.recorded.get((repository, source, whose))
        return self.lazy.get((repository, source))

    async def judge(
        self, repository: str, source: str, architectures: Collection[str], tried: Converted, whose: str = ""
    ) -> None:
        assert "amd64" in set(architectures)
        if whose:
            self.recorded[repository, source, whose] = tried
            return
        assert self.lazy[repository, source].digest == tried.digest
        if not self.lazy[repository, source].booted:
            self.lazy[repository, source] = tried

    def _note(self, repository: str, source: Reference, found: Found) -> None:
        if source.tag:
            self.there[repository, source.tag] = found

    async def find(self, repository: str, reference: str) -> Found | None:
        if self.away:
            raise MirrorAwayError("it is away")
        for (where, _), made in self.lazy.items():
            if (where, made.digest) == (repository, reference):
                return Found(made.digest, "")
        if (repository, reference) in self.made:
            return Found(reference, "")
        return self.there.get((repository, reference))


def _full() -> Problem:
    return Problem("image_store_full", "the private registry is full", side="registry", outcome="full")


@dataclass
class FakeKeyrings:
    """Owners' own credentials, by owner and then by place (registry or repository)."""

    owners: Mapping[str, Mapping[str, Credentials]] = field(default_factory=dict)

    async def of(self, owner: str) -> Keyring:
        if owner.startswith("pool:"):
            return Keyring({place: one for own in self.owners.values() for place, one in own.items()})
        return Keyring(self.owners.get(owner, {}))

    async def guards(self, reference: Reference) -> bool:
        return any(Keyring(own).find(reference) is not None for own in self.owners.values())
