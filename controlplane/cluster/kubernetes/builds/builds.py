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
from controlplane.cluster.kubernetes.builds.kept import Use
from controlplane.cluster.kubernetes.builds.manifests import Base, Made, made
from controlplane.cluster.kubernetes.builds.outside import Outside, variables
from controlplane.cluster.kubernetes.builds.pods import BuildPods, Running
from controlplane.cluster.kubernetes.builds.transfer import Transfer
from controlplane.cluster.protocol.builds import BuildNetwork, BuildPlan, BuildWish, Built, PinnedBuild
from controlplane.egress import package_variables
from controlplane.errors import Problem
from controlplane.images import PrivateRegistry, Reference, parse
from controlplane.settings import CommitSettings

USUAL: Final = "amd64"
# Contents of one build that are on their way at once.
AT_ONCE: Final = 3
# What ends a build that other ones before it in its builder may have had a part in.
SHARED_ENDS: Final = ("build_disk_full", "build_out_of_memory")


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
        owner: whose it is.
        wish: with the stage that is wanted as the builder knows it.
        recipe: of what the builder gets.
        ours: the names that it has for images, by those of the Dockerfile.
        bases: the images, by the names that it has for them.
    """

    owner: str
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
            plan.owner,
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
        given = _Given(build, context, secrets, network)
        use = Use(build.owner, build.architecture, "" if network is None else network.policy, is_alone=bool(secrets))
        for is_new in (False, True):
            async with (
                self._pods.running(use, is_new=is_new) as running,
                aclosing(self._tried(given, running, target, max_bytes=max_bytes)) as told,
            ):
                async for one in told:
                    yield one
                if running.has_built:
                    return
            yield "once more, in a builder of its own\n"

    def keeping(self) -> AbstractAsyncContextManager[None]:
        """Builders wait for their owner's next build while the block runs."""
        return self._pods.keeping()

    async def _tried(
        self, given: _Given, running: Running, target: str, *, max_bytes: int
    ) -> AsyncGenerator[str | Built, None]:
        """Builds, or ends without an image where a new builder may do better."""
        try:
            async with aclosing(self._built(given, running, target, max_bytes=max_bytes)) as told:
                async for one in told:
                    yield one
            running.has_built = True
        except LeftError as left:
            if running.pod.is_new:
                raise await self._pods.looks.ended(running.pod.name) from left
        except Problem as failed:
            if running.pod.is_new or not _may_be_shared(failed):
                raise

    async def _built(
        self, given: _Given, running: Running, target: str, *, max_bytes: int
    ) -> AsyncGenerator[str | Built, None]:
        build, builder = given.build, running.builder
        for base in build.bases.values():
            yield f"{base.name}: {len(base.layers)} layers, {base.size_bytes} bytes\n"
        await self._bring(build, running)
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

    async def _bring(self, build: Pinned, running: Running) -> None:
        """Gives a builder the images that the build reads, as far as it has not had them; each layer once."""
        free, builder, brought = asyncio.Semaphore(AT_ONCE), running.builder, running.pod.brought
        bases = [base for base in build.bases.values() if base.digest not in brought]
        blobs = {one.digest: base.repository for base in bases for one in (base.config, *base.layers)}
        blobs = {digest: repository for digest, repository in blobs.items() if digest not in brought}

        async def bring(transfer: Transfer, repository: str, digest: str) -> None:
            async with free, transfer.blob(repository, digest) as pieces:
                await builder.bring(digest, pieces)
                brought.add(digest)

        if not bases:
            return
        async with self._transfer({base.repository: ("pull",) for base in bases}) as transfer:
            for base in bases:
                await builder.bring(base.digest, base.manifest)
            await _all(bring(transfer, repository, digest) for digest, repository in blobs.items())
            brought.update(base.digest for base in bases)

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


def _may_be_shared(failed: Problem) -> bool:
    """Whether a build has failed by what earlier ones in its builder may have done."""
    return failed.code == "internal" or failed.details.get("reason") in SHARED_ENDS


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
