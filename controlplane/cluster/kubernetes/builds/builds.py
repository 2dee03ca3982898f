"""``PodBuilds``: images from Dockerfiles on Kubernetes."""

import asyncio
import secrets as random
from collections.abc import AsyncGenerator, Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO, Final, cast

from controlplane.clock import Clock
from controlplane.cluster.dockerfiles import context as contexts
from controlplane.cluster.dockerfiles.bounds import tag
from controlplane.cluster.dockerfiles.judge import Base as Said
from controlplane.cluster.dockerfiles.recipe import Recipe, recipe
from controlplane.cluster.dockerfiles.stages import FILES
from controlplane.cluster.kubernetes.builds.builder import NAMED, Builder, LeftError
from controlplane.cluster.kubernetes.builds.manifests import Base, Made, made
from controlplane.cluster.kubernetes.builds.outside import Outside, variables
from controlplane.cluster.kubernetes.builds.pods import BuildPods
from controlplane.cluster.kubernetes.builds.transfer import Transfer
from controlplane.cluster.protocol.builds import BuildNetwork, BuildPlan, BuildWish, Built, PinnedBuild
from controlplane.egress import package_variables
from controlplane.errors import Problem
from controlplane.images import PrivateRegistry, Reference, parse
from controlplane.settings import CommitSettings

USUAL: Final = "amd64"
# Contents of one build that are on their way at once.
AT_ONCE: Final = 3


@dataclass(frozen=True, slots=True)
class Plan(BuildPlan):
    """See ``BuildPlan``."""

    owner: str
    wish: BuildWish
    architecture: str


@dataclass(frozen=True, slots=True)
class Pinned(PinnedBuild):
    """See ``PinnedBuild``.

    Attributes:
        wish: with the stage that is wanted as the builder knows it.
        recipe: of what the builder gets.
        ours: the names that it has for images, by those of the Dockerfile.
        bases: the images, by the names that it has for them.
    """

    wish: BuildWish
    recipe: Recipe
    ours: Mapping[str, str]
    bases: Mapping[str, Base]
    architecture: str

    def dockerfile(self, behind_from: Sequence[str] = ()) -> str:
        """As the builder gets it, each stage with these lines at its beginning."""
        return self.recipe.pinned({**self.ours, FILES.name: NAMED.format("files")}, behind_from)


@dataclass(frozen=True, slots=True)
class _Given:
    """What a build is given."""

    build: Pinned
    context: BinaryIO
    secrets: Mapping[str, bytes]
    network: BuildNetwork | None


class PodBuilds:
    """Builds in pods; see ``cluster.protocol.Builds``.

    Args:
        pods: runs them.
        registry: the private registry, by the name that images have.
        place: where commits are put.
        authority: of its certificate; None: one that systems trust.
        architectures: of the nodes.
        cached: the package indexes that the installation's package cache has; empty: there is none.
        clock: the time of day.
    """

    def __init__(
        self,
        pods: BuildPods,
        registry: PrivateRegistry,
        place: CommitSettings,
        authority: Path | None,
        *,
        architectures: Callable[[], Collection[str]],
        cached: Sequence[str] = (),
        clock: Clock,
    ) -> None:
        self._pods = pods
        self._registry = registry
        self._place = place
        self._authority = authority
        self._architectures = architectures
        self._cached = cached
        self._clock = clock

    @property
    def reads_copies(self) -> bool:
        """See ``Builds.reads_copies``."""
        return True

    def plan(self, owner: str, wish: BuildWish) -> Plan:
        """See ``Builds.plan``."""
        there = self._architectures()
        architecture = next(iter(there)) if len(there) == 1 else USUAL
        return Plan(_judged(owner, wish, architecture).images, owner, wish, architecture)

    async def pin(self, plan: BuildPlan, names: Mapping[str, str]) -> Pinned:
        """See ``Builds.pin``. Cost: two requests for each image."""
        plan = cast("Plan", plan)
        copies = {name: self._own(name, names[name]) for name in plan.images}
        bases: dict[str, Base] = {}
        said: dict[str, Said] = {}
        if copies:
            async with self._transfer({one.repository: ("pull",) for one in copies.values()}) as transfer:
                for name, copy in copies.items():
                    found = await transfer.base(name, copy.repository, copy.digest, plan.architecture)
                    bases[name], said[name] = found[0], Said.of(found[1])
        judged = _judged(plan.owner, plan.wish, plan.architecture, said)
        known = {name: f"{base.repository}@{base.digest}" for name, base in bases.items()}
        ours = {name: NAMED.format(place) for place, name in enumerate(bases)}
        return Pinned(
            tag(plan.wish, judged.pinned({**known, FILES.name: "files"}), judged.files),
            replace(plan.wish, target=judged.target),
            judged,
            ours,
            {ours[name]: base for name, base in bases.items()},
            plan.architecture,
            addresses=judged.addresses,
            is_closed=judged.is_closed,
        )

    async def run(
        self,
        build: PinnedBuild,
        target: str,
        context: BinaryIO,
        secrets: Mapping[str, bytes],
        *,
        max_bytes: int,
        network: BuildNetwork | None = None,
    ) -> AsyncGenerator[str | Built, None]:
        """See ``Builds.run``."""
        build = cast("Pinned", build)
        await asyncio.to_thread(contexts.check, context)
        await self._pods.sweep()
        async with self._pods.running(build.architecture) as (name, builder):
            try:
                given = _Given(build, context, secrets, network)
                steps = self._built(given, builder, target, max_bytes=max_bytes)
                async with aclosing(steps) as told:
                    async for one in told:
                        yield one
            except LeftError as left:
                raise await self._pods.ended(name) from left

    async def sweep(self) -> None:
        """Removes the pods of builds that an earlier control plane has left."""
        await self._pods.sweep()

    async def _built(
        self, given: _Given, builder: Builder, target: str, *, max_bytes: int
    ) -> AsyncGenerator[str | Built, None]:
        build = given.build
        for base in build.bases.values():
            yield f"{base.name}: {len(base.layers)} layers, {base.size_bytes} bytes\n"
        await self._bring(build, builder)
        said: Any = None
        async with aclosing(self._steps(given, builder)) as every:
            async for told in every:
                if isinstance(told, str):
                    yield told
                else:
                    said = told
        image = made(said, list(build.bases.values()), max_bytes)
        yield f"{len(image.own)} new layers, {image.size_bytes} bytes\n"
        digest = await self._put(image, parse(target), builder)
        yield Built(digest, image.size_bytes)

    async def _steps(self, given: _Given, builder: Builder) -> AsyncGenerator[str | dict[str, Any], None]:
        build, network = given.build, given.network
        told, behind_from = build.wish.arguments, list[str]()
        if network is not None:
            told = {**variables(), **told}
            behind_from = [f'ARG {name}="{value}"' for name, value in package_variables(self._cached).items()]
        steps = builder.build(
            replace(build.wish, arguments=told),
            build.dockerfile(behind_from),
            build.bases,
            given.context,
            given.secrets,
            files=build.recipe.files,
            mark=f".rollbox-{random.token_hex(8)}",
            network=network is not None,
        )
        way: AbstractAsyncContextManager[object] = nullcontext()
        if network is not None:
            way = Outside.open(network, builder)
        async with way, aclosing(steps) as every:
            async for one in every:
                yield one

    async def _bring(self, build: Pinned, builder: Builder) -> None:
        """Gives a builder the images that the build reads; each layer once."""
        free = asyncio.Semaphore(AT_ONCE)
        bases = list(build.bases.values())
        blobs = {one.digest: base.repository for base in bases for one in (base.config, *base.layers)}

        async def brought(transfer: Transfer, repository: str, digest: str) -> None:
            async with free, transfer.blob(repository, digest) as pieces:
                await builder.bring(digest, pieces)

        if not bases:
            return
        async with self._transfer({base.repository: ("pull",) for base in bases}) as transfer:
            for base in bases:
                await builder.bring(base.digest, base.manifest)
            await _all(brought(transfer, repository, digest) for digest, repository in blobs.items())

    async def _put(self, image: Made, target: Reference, builder: Builder) -> str:
        rights: dict[str, Sequence[str]] = dict.fromkeys(image.below.values(), ("pull",))
        rights[target.repository] = ("pull", "push", "delete")
        async with self._transfer(rights) as transfer:
            return await transfer.put(target.repository, image, [target.tag], builder.made)

    def _transfer(self, rights: Mapping[str, Sequence[str]]) -> AbstractAsyncContextManager[Transfer]:
        return Transfer.open(self._place, self._authority, rights, self._clock.now_ms() // 1000)

    def _own(self, name: str, copy: str) -> Reference:
        """The name of the copy of an image in the private registry."""
        reference = parse(copy)
        if not self._registry.holds(reference) or not reference.digest:
            detail = f"{name} has no copy in the private registry {self._registry.host}, and builds read no other one"
            raise Problem("unsupported", detail, option="dockerfile", image=name)
        return reference


def _judged(owner: str, wish: BuildWish, architecture: str, bases: Mapping[str, Said] | None = None) -> Recipe:
    platform = f"linux/{architecture}"
    return recipe(wish.dockerfile, wish.arguments, wish.target, owner=owner, platform=platform, bases=bases)


async def _all(work: Iterable[Coroutine[Any, Any, None]]) -> None:
    """Runs them together; the first failure ends the others, and is raised as it is."""
    tasks = [asyncio.create_task(one) for one in work]
    try:
        for task in asyncio.as_completed(tasks):
            await task
    finally:
        for one in tasks:
            one.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
