"""``Builds``: makes images from Dockerfiles by Podman's own builder."""

import asyncio
import json
import secrets as random
import time
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final, cast

from controlplane.cluster.dockerfiles import context as contexts
from controlplane.cluster.dockerfiles.bounds import check_layers, check_size, tag
from controlplane.cluster.dockerfiles.judge import Base
from controlplane.cluster.dockerfiles.recipe import Recipe, recipe
from controlplane.cluster.dockerfiles.sources import File
from controlplane.cluster.dockerfiles.stages import FILES
from controlplane.cluster.engine.build import bases, fetching, files, holder
from controlplane.cluster.engine.build.leftovers import LABEL_STEPS, Leftovers
from controlplane.cluster.engine.build.output import Output
from controlplane.cluster.engine.client import EngineClient, Missing
from controlplane.cluster.engine.commit.names import kept_name
from controlplane.cluster.engine.commit.room import KEEP_FREE_BYTES, free_bytes
from controlplane.cluster.engine.containers import Host
from controlplane.cluster.engine.images import Images
from controlplane.cluster.engine.machine import Machine
from controlplane.cluster.finish import finish
from controlplane.cluster.protocol.builds import BuildNetwork, BuildPlan, BuildWish, Built, PinnedBuild
from controlplane.errors import Problem
from controlplane.images import parse

# How often it is looked whether there is room on the disk.
LOOK_EVERY_S: Final = 2.0
# For the builder to notice that a build is over, and to remove its own containers.
LEAVE_S: Final = 15.0
CHUNK_BYTES: Final = 1 << 20
# The builder looks for steps of earlier builds, and fails if the last build that had one removes it at that moment. Of
# builds that end together each may do so.
TRIES: Final = 5


@dataclass(frozen=True, slots=True)
class Plan(BuildPlan):
    """See ``BuildPlan``."""

    owner: str
    wish: BuildWish


@dataclass(frozen=True, slots=True)
class Pinned(PinnedBuild):
    """See ``PinnedBuild``.

    Attributes:
        recipe: of what the builder gets.
        ids: of the images that it reads, by their names.
        bases: what the engine says of these.
    """

    wish: BuildWish
    recipe: Recipe
    ids: Mapping[str, str]
    bases: Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class _Given:
    """What the builder gets: the Dockerfile, the context, and contents of secrets by id."""

    build_id: str
    dockerfile: str
    context: BinaryIO
    secrets: Mapping[str, bytes]


class Builds:
    """Builds on one engine; see ``cluster.protocol.Builds``."""

    def __init__(self, client: EngineClient, images: Images, host: Host, machine: Machine) -> None:
        self._client = client
        self._images = images
        self._host = host
        self._machine = machine
        self._root = self._driver = ""  # where the engine has its images, and how
        self._leftovers = Leftovers(client, host)

    @property
    def reads_copies(self) -> bool:
        """See ``Builds.reads_copies``: an engine has images of its own."""
        return False

    def plan(self, owner: str, wish: BuildWish) -> Plan:
        """See ``Builds.plan``."""
        if self._machine.is_docker:
            detail = "images are built by Podman alone: Docker's builder without a session has no secrets and no mounts"
            raise Problem("unsupported", detail, option="engine")
        return Plan(self._recipe(owner, wish).images, owner, wish)

    async def pin(self, plan: BuildPlan, names: Mapping[str, str]) -> Pinned:
        """See ``Builds.pin``."""
        plan = cast("Plan", plan)
        seen = {name: await self._base(names[name]) for name in plan.images}
        ids = {name: str(one["Id"]).removeprefix("sha256:") for name, one in seen.items()}
        told = {name: await self._told(one) for name, one in ids.items()}
        judged = self._recipe(plan.owner, plan.wish, told)
        named = tag(plan.wish, judged.pinned({**ids, FILES.name: "files"}), judged.files)
        images = list(seen.values())
        return Pinned(named, plan.wish, judged, ids, images, addresses=judged.addresses, is_closed=judged.is_closed)

    def _recipe(self, owner: str, wish: BuildWish, bases: Mapping[str, Base] | None = None) -> Recipe:
        platform = f"linux/{self._machine.architecture}"
        return recipe(wish.dockerfile, wish.arguments, wish.target, owner=owner, platform=platform, bases=bases)

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
        await self._look()
        await self.sweep()
        await self._make_room()
        output = Output()
        made = is_clean = False
        build_id = random.token_hex(8)
        await self._leftovers.begin(build_id, int(time.time()), build.ids.values())
        try:
            async with (
                self._held(build_id, network.sandbox_id if network else "") as inside,
                self._files(build_id, inside, build.recipe) as made_of,
            ):
                dockerfile = build.recipe.pinned({**build.ids, FILES.name: made_of}, self._behind_from(inside))
                given = _Given(build_id, dockerfile, context, secrets)
                for _ in range(TRIES):
                    output.again()
                    async for text in self._built(build, given, inside, output):
                        yield text
                    if not output.failed_by_itself:
                        break
            output.check()
            yield await self._named(output.image, build, target, max_bytes)
            made = is_clean = True
        finally:
            try:
                if not made:
                    is_clean = await finish(asyncio.create_task(self._undo(output)))
            finally:
                self._leftovers.end(build_id, is_clean=is_clean)

    async def sweep(self) -> None:
        """Removes what builds of an earlier control plane have left, and what could not be removed behind one.

        Cost: nothing without such builds.
        """
        await self._leftovers.sweep()

    async def _base(self, name: str) -> Mapping[str, Any]:
        image = await self._images.local(name) or await self._images.pull(name)
        seen: Mapping[str, Any] = await self._client.call("GET", f"images/{image.id}/json")
        return seen

    async def _told(self, image_id: str) -> Base:
        await self._look()
        return Base.of(await asyncio.to_thread(bases.read, self._root, self._driver, image_id))

    async def _look(self) -> None:
        if not self._root:
            info = await self._client.call("GET", "info")
            self._root, self._driver = str(info.get("DockerRootDir") or "/"), str(info.get("Driver") or "")

    @asynccontextmanager
    async def _files(self, build_id: str, inside: holder.Inside, judged: Recipe) -> AsyncIterator[str]:
        """The id of the image with the files of a Dockerfile; empty: it has none."""
        if not judged.files:
            yield ""
            return
        called = files.name(self._host.installation, build_id)
        left_bytes = fetching.MOST_BYTES
        try:
            async with fetching.session(inside.pid, holder.RELAY) as outside:

                async def fetch(file: File, to: BinaryIO) -> int:
                    nonlocal left_bytes
                    length = await fetching.fetch(outside, file, to, left_bytes)
                    left_bytes -= length
                    return length

                made = await files.made(self._client, called, self._machine.architecture, judged.files, fetch)
            yield made
        finally:
            await finish(asyncio.create_task(self._leftovers.remove_image(called)))

    def _behind_from(self, inside: holder.Inside) -> list[str]:
        """What each stage begins with: by the label its images are found if this control plane ends before they do."""
        told = inside.indexes(dict(self._host.egress).get("EGRESS_PACKAGES", ""))
        label = f'LABEL {LABEL_STEPS}="{self._host.installation}"'
        return [label, *(f'ARG {name}="{value}"' for name, value in told.items())]

    @asynccontextmanager
    async def _held(self, build_id: str, network: str) -> AsyncIterator[holder.Inside]:
        container = holder.name(build_id)
        try:
            body = holder.body(build_id, self._host, network)
            await self._client.call("POST", "containers/create", {"name": container}, body)
            await self._client.call("POST", f"containers/{container}/start")
            pid = int((await self._client.call("GET", f"containers/{container}/json"))["State"]["Pid"])
            groups = await asyncio.to_thread(Path(f"/proc/{pid}/cgroup").read_text)
            yield holder.Inside(container, pid, groups, reaches=bool(network))
        finally:
            await finish(asyncio.create_task(self._leftovers.remove_container(container)))

    async def _built(
        self,
        build: Pinned,
        given: _Given,
        inside: holder.Inside,
        output: Output,
    ) -> AsyncGenerator[str, None]:
        mark = f".rollbox-{random.token_hex(8)}"
        dockerfile, named = f"{mark}/Dockerfile", {one: f"{mark}-{place}" for place, one in enumerate(given.secrets)}
        beside = {dockerfile: given.dockerfile.encode(), **{named[one]: text for one, text in given.secrets.items()}}
        query: dict[str, str | int | bool] = {
            **inside.query,
            "dockerfile": dockerfile,
            # The builder reads no .dockerignore then: the client has.
            "excludes": json.dumps([mark]),
            "secrets": json.dumps([f"id={one},src={path}" for one, path in named.items()]),
            "buildargs": json.dumps({**inside.arguments, **build.wish.arguments}),
            "target": build.recipe.target,
            "httpproxy": False,
            "identitylabel": False,
            "rm": True,
            "forcerm": True,
        }
        archive = _archive(contexts.beside(beside), given.context)
        async with self._client.lines("POST", "build", query, archive) as lines:
            coming = asyncio.ensure_future(anext(lines, None))
            try:
                while (line := await self._next(given.build_id, coming)) is not None:
                    coming = asyncio.ensure_future(anext(lines, None))
                    if text := output.take(line):
                        yield text
            finally:
                await finish(asyncio.create_task(self._leave(inside.container, coming, lines, output)))

    async def _next(self, build_id: str, coming: asyncio.Future[dict[str, Any] | None]) -> dict[str, Any] | None:
        while not coming.done():
            await asyncio.wait([coming], timeout=LOOK_EVERY_S)
            self._check_room()
            self._leftovers.goes_on(build_id)
        return await coming

    async def _leave(
        self,
        container: str,
        coming: asyncio.Future[dict[str, Any] | None],
        lines: AsyncIterator[dict[str, Any]],
        output: Output,
    ) -> None:
        """Ends a build that is left, and hears out its builder, which has to remove what it works with."""
        if coming.done() and not coming.cancelled() and not coming.exception() and coming.result() is None:
            return
        await self._leftovers.remove_container(container)
        with suppress(Problem, TimeoutError):
            async with asyncio.timeout(LEAVE_S):
                while (line := await coming) is not None:
                    output.take(line)
                    coming = asyncio.ensure_future(anext(lines, None))

    async def _named(self, image: str, build: Pinned, target: str, max_bytes: int) -> Built:
        """Gives an image its names, if it may stay."""
        seen = await self._client.call("GET", f"images/{image}/json")
        layers = (seen.get("RootFS") or {}).get("Layers") or ()
        check_layers(len(layers))
        size_bytes = int(seen.get("Size") or 0) - max((_shared(layers, base) for base in build.bases), default=0)
        size_bytes = max(size_bytes, 0)
        check_size(size_bytes, max_bytes)
        digits = str(seen["Id"]).removeprefix("sha256:")
        kept, named = parse(kept_name(target, size_bytes).replace("{id}", digits)), parse(target)
        for one in (kept, named):
            await self._client.call("POST", f"images/{digits}/tag", {"repo": one.name, "tag": one.tag})
        return Built(f"sha256:{digits}", size_bytes)

    async def _undo(self, output: Output) -> bool:
        """Removes the images of a build's steps that have no name; one that another build goes on from stays.

        Returns:
            whether the engine has done as it was told.
        """
        is_clean = True
        for image in dict.fromkeys([*filter(None, [output.image]), *reversed(output.steps)]):
            try:
                seen = await self._client.call("GET", f"images/{image}/json")
                if not any(name != "<none>:<none>" for name in seen.get("RepoTags") or ()):
                    await self._leftovers.remove_image(str(seen["Id"]))
            except Missing:
                continue
            except Problem:
                is_clean = False
        return is_clean

    async def _make_room(self) -> None:
        try:
            self._check_room()
        except Problem:
            await self._leftovers.make_room()
            self._check_room()

    def _check_room(self) -> None:
        for folder in (self._root, "/tmp"):  # noqa: S108 - where the engine unpacks contexts
            if (free := free_bytes(folder)) < KEEP_FREE_BYTES:
                detail = f"no image was built: {folder} has {free} bytes free, of which {KEEP_FREE_BYTES} stay free"
                raise Problem("capacity_unavailable", detail)


def _shared(layers: Sequence[str], base: Mapping[str, Any]) -> int:
    """The bytes of an image whose layers are the lowest of these; 0: they are not."""
    below = (base.get("RootFS") or {}).get("Layers") or ()
    return int(base.get("Size") or 0) if list(layers[: len(below)]) == list(below) else 0


async def _archive(head: bytes, context: BinaryIO) -> AsyncIterator[bytes]:
    yield head
    context.seek(0)
    while data := await asyncio.to_thread(context.read, CHUNK_BYTES):
        yield data
