"""Images that a cluster in memory makes of sandboxes."""

import asyncio
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from controlplane.cluster import Committed, CommittedImage
from controlplane.errors import Problem
from controlplane.images import Checkpoint
from controlplane.model import SandboxSpec


@dataclass
class FakeKeptImages:
    """What was made, in memory."""

    place: str
    committed: dict[str, str] = field(default_factory=dict)  # digests, by name
    images: dict[str, CommittedImage] = field(default_factory=dict)  # by digest
    unremovable: set[str] = field(default_factory=set)  # digests

    async def digest(self, name: str) -> str:
        await asyncio.sleep(0.01)
        return self.committed.get(name, "")

    async def below(self, folder: str) -> Sequence[CommittedImage]:
        await asyncio.sleep(0.01)
        names = {digest: name for name, digest in self.committed.items()}
        return [
            replace(one, tags=[names[one.digest].rpartition(":")[2]] if one.digest in names else [])
            for one in self.images.values()
            if one.name.startswith(f"{folder}/")
        ]

    async def expired(self, before_ms: int) -> Sequence[CommittedImage]:
        known = ((one, Checkpoint.among(self.place, one.name, one.tags)) for one in await self.below(self.place))
        return [image for image, one in known if one is not None and one.expires_at_ms <= before_ms]

    async def remove(self, image: CommittedImage) -> None:
        if image.digest in self.unremovable:
            raise Problem("conflict", f"{image.name} is in use: a container was made of it a moment ago")
        self.images.pop(image.digest, None)
        self.committed = {name: digest for name, digest in self.committed.items() if digest != image.digest}


@dataclass
class FakeCommits:
    """A commit takes `commit_s`."""

    place: str = "localhost/rollbox/commits"
    commit_s: float = 0.5
    next_error: Exception | None = None
    changed_bytes: dict[str, int] = field(default_factory=dict)  # by sandbox; the others have changed 1 KiB
    runs: Callable[[str], SandboxSpec | None] = lambda _: None

    def __post_init__(self) -> None:
        self.kept = FakeKeptImages(self.place)
        self._committing: set[str] = set()
        self._made = 0

    async def commit(self, sandbox_id: str, target: str, max_bytes: int, *, squash: bool = False) -> Committed:
        if sandbox_id in self._committing:
            raise Problem("conflict", f"{sandbox_id} is being committed already", sandbox_id=sandbox_id)
        if (spec := self.runs(sandbox_id)) is None:
            raise Problem("sandbox_lost", f"{sandbox_id} does not run", sandbox_id=sandbox_id)
        self._committing.add(sandbox_id)
        try:
            await asyncio.sleep(self.commit_s)
        finally:
            self._committing.discard(sandbox_id)
        error, self.next_error = self.next_error, None
        if error is not None:
            raise error
        self._made += 1
        size_bytes = self.changed_bytes.get(sandbox_id, 1024)
        if size_bytes > max_bytes:
            raise Problem("payload_too_large", f"{sandbox_id} has changed {size_bytes} bytes", size_bytes=size_bytes)
        # Another one each time, as the time in an image makes it.
        digest = f"sha256:{hashlib.sha256(f'{target} {sandbox_id} {self._made}'.encode()).hexdigest()}"
        self.kept.committed[target] = digest
        name, _, tag = target.rpartition(":")
        base, kept = spec.image.rpartition("@")[2], self.kept.images
        built_on = [*kept[base].built_on, *(() if squash else (base,))] if base in kept else []
        kept[digest] = CommittedImage(name, [tag], digest, size_bytes, len(kept), built_on)
        return Committed(target, digest, size_bytes, ["/run/socket: a socket"])
