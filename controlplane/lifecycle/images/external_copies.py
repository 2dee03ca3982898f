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
# A removal is broken off after so long: well before its note, which is kept for ``GONE_MS``, lets a use pass again.
REMOVED_WITHIN_S: Final = 120.0
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

        Of one that is being removed it waits for the end (``GOING_MS``), and then it is taken for removed: what has
        begun to be removed is given to no start, however long its registry takes.
        """
        if not repository.startswith(f"{CONVERTED}/"):
            return True
        for _ in range(TRIES):
            text = await self._over(repository, digest)
            known = _Note.read(text)
            if known is not None and known.state == "going":
                return False
            if known is not None and known.state == "gone" and not await self._copies.there(repository, digest):
                return False
            now_ms = self._clock.now_ms()
            if await self._write(_name(repository, digest), _Note(now_ms, now_ms), text):
                return True
        raise Problem(
            "upstream_timeout", f"the use of {repository}@{digest} is not noted: others write it all the time"
        )

    async def remove(self, repository: str, digest: str, unused_since_ms: int) -> bool:
        """See ``CopyStore.remove``.

        The store is told first: a use from then on waits, and asks the registry whether it is there.
        """
        text = await self._store.note(_name(repository, digest))
        known = _Note.read(text)
        used_ms = self._clock.now_ms() if known is None else known.used_ms
        if used_ms > unused_since_ms:
            raise Problem("conflict", f"{repository}@{digest} was used meanwhile")
        going = _Note(used_ms, self._clock.now_ms(), "going")
        if not await self._write(_name(repository, digest), going, text, GONE_MS):
            raise Problem("conflict", f"{repository}@{digest} was used just now")
        kept_ms = KEPT_MS  # if it is not removed, it stays the least used one: the next look tries again
        try:
            async with asyncio.timeout(REMOVED_WITHIN_S):
                there = await self._copies.remove(repository, digest)
            kept_ms = GONE_MS
        except TimeoutError as error:
            detail = f"{repository}@{digest} was not removed within {REMOVED_WITHIN_S:.0f} s"
            raise Problem("upstream_timeout", detail) from error
        finally:
            # Also where it failed: what was asked for may have been done, so a use asks the registry.
            gone = _Note(used_ms, self._clock.now_ms(), "gone").text()
            await self._store.change_note(
                _name(repository, digest), lambda now: gone if _is_going(_Note.read(now)) else None, kept_ms
            )
        return there

    async def _over(self, repository: str, digest: str) -> str:
        """The note of a copy when nobody is removing it any more, or after ``GOING_MS``."""
        until_ms = self._clock.now_ms() + GOING_MS
        while True:
            text = await self._store.note(_name(repository, digest))
            if not _is_going(_Note.read(text)) or self._clock.now_ms() >= until_ms:
                return text
            await asyncio.sleep(LOOKS_EVERY_S)

    async def _seen(self, image: RegistryImage) -> int:
        """When a copy was used last; it is seen now."""
        now_ms = used_ms = self._clock.now_ms()

        def seen(text: str) -> str | None:
            nonlocal used_ms
            known = _Note.read(text)
            used_ms = now_ms if known is None else known.used_ms
            renewed = known is None or now_ms - known.written_ms > RENEWED_MS
            return _Note(used_ms, now_ms).text() if renewed else None

        # Another one that writes just now has a use of now.
        await self._store.change_note(_name(image.repository, image.digest), seen, KEPT_MS)
        return used_ms

    async def _write(self, name: str, note: _Note, before: str, kept_ms: int = KEPT_MS) -> bool:
        return await self._store.write_note(name, note.text(), kept_ms, before=before)


def _is_going(note: _Note | None) -> bool:
    return note is not None and note.state == "going"


def _name(repository: str, digest: str) -> str:
    return f"copy-use:{repository}@{digest}"
