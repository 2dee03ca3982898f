"""``Inventory``: what owners see of the images on nodes, and what they have pulled there before it is needed."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Final

import structlog

from controlplane.cluster import Cluster, NodeImage, NodeImages, PrefetchProgress, without_agents
from controlplane.errors import Problem
from controlplane.lifecycle.images.conversion_queue import Conversion
from controlplane.lifecycle.images.lazily import LazyStarts
from controlplane.lifecycle.images.ownership import Ownership
from controlplane.lifecycle.images.pins import Images, Pin
from controlplane.lifecycle.images.progress import LOOK_EVERY_S, ConversionProgress
from controlplane.lifecycle.images.recordings import Recording, Recordings, RecordWish
from controlplane.model import SandboxSpec
from controlplane.telemetry import Metrics

# Of one call; each node pulls fewer at once.
AT_ONCE: Final = 16
# Silence is not told from a connection that is gone: what was said last is said again.
TELL_EVERY_S: Final = 10.0
# What the cluster has said and the caller has not read; then pulls wait to be told, and go on.
MOST_UNREAD: Final = 256
# Until it is known what nodes pull, with the copy into the private registry; a guess: large images take minutes.
NAMED_WITHIN_S: Final = 900.0


@dataclass(frozen=True, slots=True)
class ImageProgress:
    """How far one image is.

    Attributes:
        image: as the call named it.
        progress: of a node; of no node (empty) where it failed before any was asked.
    """

    image: str
    progress: PrefetchProgress


class Inventory:
    """Images on nodes.

    Args:
        cluster: has the nodes.
        images: knows which image a name means.
        ownership: knows whose it is.
        lazily: knows in which form starts get it.
        recordings: runs commands whose files come first.
        metrics: counts prefetches.
    """

    def __init__(
        self,
        cluster: Cluster,
        images: Images,
        ownership: Ownership,
        lazily: LazyStarts,
        *,
        recordings: Recordings,
        metrics: Metrics,
    ) -> None:
        self._lazily = lazily
        self._recordings = recordings
        self._cluster = cluster
        self._images = images
        self._ownership = ownership
        self._metrics = metrics
        self._log = structlog.get_logger("images")

    async def list(self, owner: str, *, everything: bool) -> Sequence[NodeImage]:
        """The images on the nodes, by node and name; of those that others have committed nothing.

        Args:
            owner: who asks.
            everything: for an operator: all, also those that have no name.

        Raises:
            Problem: unsupported: this cluster cannot tell.
        """
        found = await self._there("the images of nodes are not known").all()
        seen = found if everything else [one for one in (self._seen(owner, one) for one in found) if one.names]
        return sorted(seen, key=lambda one: (one.node, *sorted(one.names)))

    async def prefetch(
        self, owner: str, names: Sequence[str], nodes: int | None = None
    ) -> AsyncGenerator[ImageProgress, None]:
        """Pulls images to the nodes; the progress of all of them, as it comes.

        Pulls what starts would get: names are resolved as theirs are. Who leaves it closes it, which ends what it waits
        for.

        Args:
            owner: who asks.
            names: the images.
            nodes: on how many each is to be; None: on all.

        Raises:
            Problem: permission_denied, unsupported: before the first progress; whatever fails later is progress.
        """
        for name in names:
            self._ownership.check(owner, name)
        self._there("no image can be pulled before a sandbox needs it")
        told: asyncio.Queue[ImageProgress | None] = asyncio.Queue(MOST_UNREAD)
        work = asyncio.create_task(self._all(owner, tuple(dict.fromkeys(names)), nodes, told), name="prefetch")
        try:
            last = ImageProgress(names[0], PrefetchProgress("", "pulling"))
            while (progress := await _within(TELL_EVERY_S, told, last)) is not None:
                yield progress
                last = progress if progress.progress.state == "pulling" else last
        finally:
            work.cancel()
            await asyncio.wait([work])
        if not work.cancelled():
            work.result()

    def close(self) -> None:
        """Breaks off all recordings."""
        self._recordings.close()

    async def convert(
        self, owner: str, name: str, first: Sequence[str] = (), record: RecordWish | None = None
    ) -> AsyncGenerator[ConversionProgress, None]:
        """Has an image converted, ahead of those that no one waits for; the last progress is ``offered``.

        A caller that stops early closes the stream; the conversion goes on.

        Args:
            owner: has the right to the image.
            name: as for a create.
            first: makes a recorded copy, which the starts of this owner alone get: the paths of files that nodes fetch
                before all others, in this order.
            record: has these found: runs a command in a sandbox of this owner, from the converted copy of all owners.

        Raises:
            Problem: permission_denied, unsupported, quota_exceeded: before the first progress; why it is not offered.
        """
        self._ownership.check(owner, name)
        self._lazily.check_converts()
        if record is not None:
            self._check_records()
        if first or record is not None:
            await self._lazily.check_recorded(owner)
        yield ConversionProgress("copying")
        copying = asyncio.ensure_future(self._copied(owner, name))
        try:
            while not (await asyncio.wait({copying}, timeout=TELL_EVERY_S))[0]:
                yield ConversionProgress("copying")
            pin = copying.result()
        finally:
            copying.cancel()
        found = await self._lazily.conversion(owner, pin, first)
        if isinstance(found, Conversion):
            async for told in _followed(found):
                yield told
            found = self._lazily.pinned(pin, await found.digest())
        if record is None:
            yield ConversionProgress("offered", digest=pin.digest, ran=found.ran)
            return
        recording = self._recordings.joined(owner, pin, found, record)
        async for told in _recorded(recording):
            yield told
        yield recording.answer()

    def _there(self, what: str) -> NodeImages:
        if (found := self._cluster.node_images) is None:
            raise without_agents(what)
        return found

    def _check_records(self) -> None:
        if self._cluster.lazy is None or not self._cluster.lazy.records:
            raise without_agents("no node tells which files a sandbox opens")

    def _seen(self, owner: str, image: NodeImage) -> NodeImage:
        return replace(image, names=[name for name in image.names if self._ownership.may_see(owner, name)])

    async def _all(
        self, owner: str, names: Sequence[str], nodes: int | None, told: asyncio.Queue[ImageProgress | None]
    ) -> None:
        places = asyncio.Semaphore(AT_ONCE)
        async with asyncio.TaskGroup() as group:
            for name in names:
                group.create_task(self._one(owner, name, nodes, told, places), name=f"prefetch {name}")
        # Only here: where this is broken off nobody reads any more, and a full queue would never take it.
        await told.put(None)

    async def _one(
        self,
        owner: str,
        name: str,
        nodes: int | None,
        told: asyncio.Queue[ImageProgress | None],
        places: asyncio.Semaphore,
    ) -> None:
        async with places:
            try:
                pin = await self._named(owner, name)
                there = self._there(f"{pin.name} cannot be pulled before a sandbox needs it")
                async with aclosing(there.prefetch(pin.name, nodes, self._images.layers(pin))) as progresses:
                    async for progress in progresses:
                        self._count(progress)
                        await told.put(ImageProgress(name, progress))
            except Problem as problem:
                await told.put(self._failed(name, problem))
            except Exception:
                self._log.exception("prefetch failed", image=name)
                bug = Problem("internal", f"the prefetch of {name} failed in the control plane")
                await told.put(self._failed(name, bug))

    async def _named(self, owner: str, name: str) -> Pin:
        return await self._lazily.ahead(owner, SandboxSpec(image=name), await self._copied(owner, name))

    async def _copied(self, owner: str, name: str) -> Pin:
        try:
            async with asyncio.timeout(NAMED_WITHIN_S):
                return await self._images.named(owner, name)
        except TimeoutError as late:
            detail = f"{name} was not resolved and copied within {NAMED_WITHIN_S:.0f} s"
            raise Problem("image_pull_failed", detail, image=name) from late

    def _failed(self, name: str, problem: Problem) -> ImageProgress:
        self._metrics.prefetched("failed")
        return ImageProgress(name, PrefetchProgress("", "failed", failure=problem))

    def _count(self, progress: PrefetchProgress) -> None:
        if progress.state != "pulling":
            self._metrics.prefetched(progress.state)


async def _followed(conversion: Conversion) -> AsyncGenerator[ConversionProgress, None]:
    """What changes, and something at least every ``TELL_EVERY_S``, until it is over."""
    last, quiet_s = "", 0.0
    while not await conversion.soon(LOOK_EVERY_S):
        quiet_s += LOOK_EVERY_S
        if conversion.progress != last or quiet_s >= TELL_EVERY_S:
            last, quiet_s = conversion.progress, 0.0
            yield ConversionProgress("converting", last)


async def _recorded(recording: Recording) -> AsyncGenerator[ConversionProgress, None]:
    """As ``_followed``, of a recording."""
    last, quiet_s = recording.now, 0.0
    yield last
    while not await recording.soon(LOOK_EVERY_S):
        quiet_s += LOOK_EVERY_S
        if recording.now != last or quiet_s >= TELL_EVERY_S:
            last, quiet_s = recording.now, 0.0
            yield last


async def _within(
    limit_s: float, told: asyncio.Queue[ImageProgress | None], last: ImageProgress
) -> ImageProgress | None:
    try:
        async with asyncio.timeout(limit_s):
            return await told.get()
    except TimeoutError:
        return last
