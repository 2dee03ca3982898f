"""``ExternalCopies``: the recorded copies of a registry that somebody else looks after, and when they were used.

No registry tells when something was put there or used. So the store keeps it: a copy that the store knows nothing of is
as young as the first look at it. A store that was lost makes all of them young, and nothing is removed too early.
"""

import asyncio
from dataclasses import dataclass, replace
from typing import Final, Literal, Self, get_args
from uuid import uuid4

from controlplane.clock import Clock
from controlplane.errors import Problem
from controlplane.images import CONVERTED, RecordedList, RegistryImage
from controlplane.lifecycle.record.recovering_store import RecoveringStore

# How long a use is remembered. What is looked at is kept on, so this is for copies that somebody else has removed.
KEPT_MS: Final = 30 * 86_400_000
# A note that is older is written anew, with the same use.
RENEWED_MS: Final = KEPT_MS // 2
# How long it is remembered that a copy was removed: longer than an answer of the mirror holds that has found it there.
GONE_MS: Final = 300_000
# A removal takes some requests. A start waits so long for the end of one, and asks so often whether it is over.
GOING_MS: Final = 5_000
LOOKS_EVERY_S: Final = 0.1
# So often another replica may note a use at the same moment.
TRIES: Final = 16


State = Literal["there", "going", "gone"]
STATES: Final[tuple[State, ...]] = get_args(State)


@dataclass(frozen=True, slots=True)
class _Note:
    """What the store has of a copy.

    Attributes:
        used_ms: when it was used last, or seen first (Unix ms).
        written_ms: when that was noted.
        state: whether it is being removed, or was.
    """

    used_ms: int
    written_ms: int
    state: State = "there"

    def text(self) -> str:
        # No two writers write the same.
        return f"{self.used_ms} {self.written_ms} {self.state} {uuid4().hex}"

    @classmethod
    def read(cls, text: str) -> Self | None:
        """None: nothing is kept, or by a version that writes it in another way."""
        parts = text.split(" ")
        state = next((one for one in STATES if parts[2:3] == [one]), None)
        if state is None or not (parts[0].isdecimal() and parts[1].isdecimal()):
            return None
        return cls(int(parts[0]), int(parts[1]), state)


class ExternalCopies:
    """See ``images.CopyStore``; of copies that are not converted nothing is noted, since nothing removes them.

    Args:
        copies: lists and removes them.
        store: keeps their uses, for all replicas.
        clock: the time of day.
    """

    def __init__(self, copies: RecordedList, store: RecoveringStore, clock: Clock) -> None:
        self._copies = copies
        self._store = store
        self._clock = clock

    async def stored(self) -> list[RegistryImage]:
        """See ``CopyStore.stored``: recorded copies alone. Cost: also a note of the store for each."""
        return [replace(one, used_ms=await self._seen(one)) for one in await self._copies.all()]

    async def recorded(self, owner: str) -> tuple[int, int]:
        """See ``CopyStore.recorded``."""
        own = await self._copies.of(owner)
        return len(own), sum({part: size for one in own for part, size in one.parts.items()}.values())

    async def use(self, repository: str, digest: str) -> bool:
        """See ``CopyStore.use``. Cost: two small steps of the store; a request, if it was removed a moment ago.

        Of one that is being removed it waits for the end (``GOING_MS``).
        """
        if not repository.startswith(f"{CONVERTED}/"):
            return True
        for _ in range(TRIES):
            text = await self._over(repository, digest)
            known = _Note.read(text)
            if known is not None and known.state != "there" and not await self._copies.there(repository, digest):
                return False
            if await self._write(repository, digest, self._clock.now_ms(), text):
                return True
        raise Problem(
            "upstream_timeout", f"the use of {repository}@{digest} is not noted: others write it all the time"
        )

    async def remove(self, repository: str, digest: str, unused_since_ms: int) -> bool:
        """See ``CopyStore.remove``.

        The store is told first: who uses it from then on waits, and asks the registry whether it is there.
        """
        text = await self._store.note(_name(repository, digest))
        known = _Note.read(text)
        used_ms = self._clock.now_ms() if known is None else known.used_ms
        if used_ms > unused_since_ms:
            raise Problem("conflict", f"{repository}@{digest} was used meanwhile")
        if not await self._write(repository, digest, used_ms, text, "going"):
            raise Problem("conflict", f"{repository}@{digest} was used just now")
        state: State = "there"  # if it is not removed, it stays the least used one: the next look tries again
        try:
            there = await self._copies.remove(repository, digest)
            state = "gone"
        finally:
            now = await self._store.note(_name(repository, digest))
            if (going := _Note.read(now)) is not None and going.state == "going":
                await self._write(repository, digest, used_ms, now, state)
        return there

    async def _over(self, repository: str, digest: str) -> str:
        """The note of a copy that nobody is removing."""
        while True:
            text = await self._store.note(_name(repository, digest))
            known = _Note.read(text)
            over = known is None or known.state != "going" or self._clock.now_ms() > known.written_ms + GOING_MS
            if over:
                return text
            await asyncio.sleep(LOOKS_EVERY_S)

    async def _seen(self, image: RegistryImage) -> int:
        """When a copy was used last; it is seen now."""
        text = await self._store.note(_name(image.repository, image.digest))
        known, now_ms = _Note.read(text), self._clock.now_ms()
        used_ms = now_ms if known is None else known.used_ms
        if known is None or now_ms - known.written_ms > RENEWED_MS:
            # Another one that writes just now has a use of now.
            await self._write(image.repository, image.digest, used_ms, text)
        return used_ms

    async def _write(self, repository: str, digest: str, used_ms: int, before: str, state: State = "there") -> bool:
        note = _Note(used_ms, self._clock.now_ms(), state)
        ttl_ms = KEPT_MS if state == "there" else GONE_MS
        return await self._store.write_note(_name(repository, digest), note.text(), ttl_ms, before=before)


def _name(repository: str, digest: str) -> str:
    return f"copy-use:{repository}@{digest}"
