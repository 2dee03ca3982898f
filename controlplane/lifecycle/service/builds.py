"""``ImageBuilds``: images from Dockerfiles, for owners: once for each content, so many at a time."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import BinaryIO, Final, Literal, Protocol, TypeVar
from weakref import WeakValueDictionary

from controlplane.cluster import BuildNetwork, BuildPlan, Builds, BuildWish, Built, Commits, PinnedBuild, without_builds
from controlplane.egress import PolicyOrPreset
from controlplane.errors import Problem
from controlplane.images import folder, parse
from controlplane.lifecycle.housekeeping.committed import CommittedImages
from controlplane.lifecycle.images import Ownership, Pin
from controlplane.lifecycle.service.turns import Turns

# Of all owners: builds share a machine with rollouts.
MOST_AT_ONCE: Final = 4
# The name that built images have among their owner's own.
BUILDS: Final = "builds"
# A build that says nothing is told to go on, so that no connection is taken for dead.
QUIET_S: Final = 2.0

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class BuildLimits:
    """What a build may take.

    Attributes:
        within_ms: from when it begins, without its wait for a turn.
        max_bytes: of the layers that its base has not.
        egress: what its steps may reach; None: nothing.
    """

    within_ms: int
    max_bytes: int
    egress: PolicyOrPreset | None = None


@dataclass(frozen=True, slots=True)
class BuildProgress:
    """How far a build is.

    Attributes:
        state: ``context_wanted`` and ``built`` are last ones; the first of them: it is not there yet, and was asked for
            without its context.
        place: in the line of its owner's builds, from 1.
        text: what the builder says.
        image: its name with its digest.
        cached: it was there already.
    """

    state: Literal["queued", "building", "context_wanted", "built"]
    place: int = 0
    text: str = ""
    image: str = ""
    digest: str = ""
    size_bytes: int = 0
    cached: bool = False


class Networks(Protocol):
    """The part of ``BuildNetworks`` that is used."""

    def of(
        self, owner: str, image: str, egress: PolicyOrPreset, within_ms: int
    ) -> AbstractAsyncContextManager[BuildNetwork]:
        """See ``BuildNetworks.of``."""
        ...


class Images(Protocol):
    """The part of ``lifecycle.images.Images`` that is used."""

    def pulled(self, name: str) -> str:
        """See ``Images.pulled``."""
        ...

    async def named(self, owner: str, name: str) -> Pin:
        """See ``Images.named``."""
        ...


class ImageBuilds:
    """Builds images for owners.

    Args:
        builds: the cluster's; None: that is not offered here.
        commits: where images are kept.
        committed: knows how many bytes of them an owner may have.
        ownership: says which images an owner may have.
        images: finds what an owner's names of images mean.
        networks: makes sandboxes whose network the steps of a build have.
        made: is told of each image that was built, with its owner.
    """

    def __init__(
        self,
        builds: Builds | None,
        commits: Commits | None,
        committed: CommittedImages,
        ownership: Ownership,
        images: Images,
        *,
        networks: Networks,
        made: Callable[[str, str], None],
    ) -> None:
        self._networks = networks
        self._made = made
        self._builds = builds
        self._commits = commits
        self._committed = committed
        self._ownership = ownership
        self._images = images
        self._turns = Turns(MOST_AT_ONCE)
        self._alone: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def check(self) -> None:
        """Raises Problem unsupported where this installation builds no images."""
        self._there()

    def build(
        self, owner: str, wish: BuildWish, context: BinaryIO | None, secrets: Mapping[str, bytes], limits: BuildLimits
    ) -> AsyncGenerator[BuildProgress, None]:
        """Builds an image, or finds the one of the same content; tells how far it is. Leaving it ends the build.

        Args:
            owner: whose image it is.
            wish: what is to be built.
            context: the archive; None: only an image that is there is of use.
            secrets: contents by id.
            limits: of the build.

        Raises:
            Problem: unsupported, invalid_argument, permission_denied: what it reads is another owner's;
                image_not_found, build_failed, quota_exceeded, rate_limited; those of ``Builds.run``.
        """
        return _told(self._steps(owner, wish, context, secrets, limits=limits))

    async def _steps(
        self,
        owner: str,
        wish: BuildWish,
        context: BinaryIO | None,
        secrets: Mapping[str, bytes],
        *,
        limits: BuildLimits,
    ) -> AsyncGenerator[BuildProgress, None]:
        builds, commits = self._there()
        plan = builds.plan(owner, wish)
        if limits.egress is not None:
            _check_egress(plan)
        for name in plan.images:
            self._ownership.check(owner, _checked(name))
        # The answer begins before images are pulled.
        yield BuildProgress("building")
        names = {name: await self._source(builds, owner, name) for name in plan.images}
        pinned = await builds.pin(plan, names)
        target = f"{commits.place}/{folder(owner)}/{BUILDS}:{pinned.tag}"
        lock = self._alone.setdefault(target, asyncio.Lock())
        async with lock:
            if digest := await commits.kept.digest(target):
                yield BuildProgress("built", image=f"{target}@{digest}", digest=digest, cached=True)
                return
            _check_reach(pinned, limits)
            if context is None:
                yield BuildProgress("context_wanted")
                return
            async with aclosing(self._turns.wait(owner)) as waiting:
                async for place in waiting:
                    yield BuildProgress("queued", place=place)
            try:
                async with self._network(owner, plan, limits) as network:
                    run = partial(builds.run, pinned, target, context, secrets, network=network)
                    async with aclosing(self._built(owner, target, run, limits)) as told:
                        async for progress in told:
                            yield progress
            finally:
                self._turns.leave(owner)

    async def _source(self, builds: Builds, owner: str, name: str) -> str:
        """The name by which a build reads an image that its owner may have."""
        return (await self._images.named(owner, name)).name if builds.reads_copies else self._images.pulled(name)

    @asynccontextmanager
    async def _network(self, owner: str, plan: BuildPlan, limits: BuildLimits) -> AsyncIterator[BuildNetwork | None]:
        if limits.egress is None:
            yield None
            return
        async with self._networks.of(owner, plan.images[0], limits.egress, limits.within_ms) as network:
            yield network

    async def _built(
        self, owner: str, target: str, run: Callable[..., AsyncGenerator[str | Built, None]], limits: BuildLimits
    ) -> AsyncGenerator[BuildProgress, None]:
        deadline = asyncio.get_running_loop().time() + limits.within_ms / 1000
        async with (
            self._committed.room(owner, limits.max_bytes) as most,
            aclosing(_in_time(run(max_bytes=most), deadline)) as told,
        ):
            async for one in told:
                if isinstance(one, Built):
                    image = f"{target}@{one.digest}"
                    self._made(owner, image)
                    yield BuildProgress("built", image=image, digest=one.digest, size_bytes=one.size_bytes)
                else:
                    yield BuildProgress("building", text=one)

    def _there(self) -> tuple[Builds, Commits]:
        if self._builds is None or self._commits is None:
            raise without_builds("this installation builds no images")
        return self._builds, self._commits


async def _told(steps: AsyncGenerator[BuildProgress, None]) -> AsyncGenerator[BuildProgress, None]:
    """The steps of a build, and one without words where they are quiet: as for a turn, room or an image."""
    async with aclosing(_each(steps, QUIET_S)) as every:
        async for step in every:
            yield BuildProgress("building") if step is None else step


async def _in_time(told: AsyncGenerator[str | Built, None], deadline: float) -> AsyncGenerator[str | Built, None]:
    """What a build tells, and its end where it takes too long."""
    now = asyncio.get_running_loop().time
    async with aclosing(_each(told, QUIET_S)) as every:
        async for one in every:
            if one is not None:
                yield one
            # One that never stops talking is late too.
            if now() >= deadline and not isinstance(one, Built):
                detail = "no image was built: it was not done in its time; nothing of it is left"
                raise Problem("build_failed", detail, reason="build_too_slow")


async def _each(told: AsyncGenerator[T, None], quiet_s: float) -> AsyncGenerator[T | None, None]:
    """What is told, and None after each time of silence. Leaving it ends what tells."""
    coming: asyncio.Future[T | None] | None = None
    try:
        while True:
            coming = coming or asyncio.ensure_future(anext(told, None))
            await asyncio.wait([coming], timeout=quiet_s)
            if not coming.done():
                yield None
                continue
            one, coming = await coming, None
            if one is None:
                return
            yield one
    finally:
        if coming is not None:
            coming.cancel()
            await asyncio.wait([coming])
        await told.aclose()


def _check_egress(plan: BuildPlan) -> None:
    if not plan.images:
        detail = "egress takes a Dockerfile that begins with an image: a sandbox of it is how its steps reach anything"
        raise Problem("unsupported", detail, option="egress")


def _check_reach(build: PinnedBuild, limits: BuildLimits) -> None:
    if limits.egress is None and build.addresses:
        detail = f"ADD of {build.addresses[0][:200]} takes a policy that allows its host (egress, --egress)"
    elif limits.egress is not None and build.is_closed:
        detail = "RUN --network=none beside an egress policy: a build has one network for all its steps"
    else:
        return
    raise Problem("unsupported", detail, option="egress")


def _checked(name: str) -> str:
    try:
        parse(name)
    except ValueError as error:
        raise Problem("invalid_argument", f"Dockerfile: {error}", field="dockerfile") from error
    return name
