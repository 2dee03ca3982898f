"""``Builds``: makes images from Dockerfiles by Podman's own builder."""

import asyncio
import json
import secrets as random
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final, cast

import structlog

from controlplane.cluster.dockerfiles import context as contexts
from controlplane.cluster.dockerfiles.bounds import check_layers, check_size, tag
from controlplane.cluster.dockerfiles.recipe import Recipe, recipe
from controlplane.cluster.engine.build import holder
from controlplane.cluster.engine.build.output import Output
from controlplane.cluster.engine.client import EngineClient, Missing
from controlplane.cluster.engine.commit.names import kept_name
from controlplane.cluster.engine.commit.room import KEEP_FREE_BYTES, free_bytes
from controlplane.cluster.engine.containers import LABEL_INSTALLATION, Host
from controlplane.cluster.engine.images import Images
from controlplane.cluster.engine.machine import Machine
from controlplane.cluster.finish import finish
from controlplane.cluster.protocol.builds import BuildPlan, BuildWish, Built, PinnedBuild
from controlplane.errors import Problem
from controlplane.images import parse

# How often it is looked whether there is room on the disk.
LOOK_EVERY_S: Final = 2.0
# For the builder to notice that a build is over, and to remove its own containers.
LEAVE_S: Final = 15.0
CHUNK_BYTES: Final = 1 << 20
# The builder looks for steps of earlier builds, and fails if the last build that had one removes it at that moment.
TRIES: Final = 2


@dataclass(frozen=True, slots=True)
class Plan(BuildPlan):
    """See ``BuildPlan``."""

    wish: BuildWish
    recipe: Recipe


@dataclass(frozen=True, slots=True)
class Pinned(PinnedBuild):
    """See ``PinnedBuild``.

    Attributes:
        dockerfile: as the builder gets it.
        bases: what the engine says of the images that it reads.
        is_closed: see ``Recipe``.
    """

    wish: BuildWish
    dockerfile: str
    bases: Sequence[Mapping[str, Any]]
    is_closed: bool


class Builds:
    """Builds on one engine; see ``cluster.protocol.Builds``."""

    def __init__(self, client: EngineClient, images: Images, host: Host, machine: Machine) -> None:
        self._client = client
        self._images = images
        self._host = host
        self._machine = machine
        self._root = ""  # where the engine has its images
        self._log = structlog.get_logger("builds")

    def plan(self, owner: str, wish: BuildWish) -> Plan:
        """See ``Builds.plan``."""
        if self._machine.is_docker:
            detail = "images are built by Podman alone: Docker's builder without a session has no secrets and no mounts"
            raise Problem("unsupported", detail, option="engine")
        platform = f"linux/{self._machine.architecture}"
        found = recipe(wish.dockerfile, wish.arguments, wish.target, owner=owner, platform=platform)
        return Plan(found.images, wish, found)

    async def pin(self, plan: BuildPlan, names: Mapping[str, str]) -> Pinned:
        """See ``Builds.pin``."""
        plan = cast("Plan", plan)
        seen = {name: await self._base(names[name]) for name in plan.images}
        ids = {name: str(one["Id"]).removeprefix("sha256:") for name, one in seen.items()}
        if plan.recipe.has_documents and any((one.get("Config") or {}).get("Shell") for one in seen.values()):
            detail = (
                "an image that it reads has a SHELL: one in the Dockerfile is needed for a RUN with a document inline"
            )
            raise Problem("unsupported", detail, option="dockerfile")
        dockerfile = plan.recipe.pinned(ids)
        return Pinned(tag(plan.wish, dockerfile), plan.wish, dockerfile, list(seen.values()), plan.recipe.is_closed)

    async def run(
        self,
        build: PinnedBuild,
        target: str,
        context: BinaryIO,
        secrets: Mapping[str, bytes],
        *,
        max_bytes: int,
        network: str = "",
    ) -> AsyncGenerator[str | Built, None]:
        """See ``Builds.run``."""
        build = cast("Pinned", build)
        if network and build.is_closed:
            detail = "RUN --network=none beside an egress policy: the engine's builder has one network for all steps"
            raise Problem("unsupported", detail, option="egress")
        await asyncio.to_thread(contexts.check, context)
        self._root = self._root or str((await self._client.call("GET", "info")).get("DockerRootDir") or "/")
        self._check_room()
        output = Output()
        made = False
        try:
            async with self._held(network) as inside:
                for _ in range(TRIES):
                    output.again()
                    async for text in self._built(build, inside, context, secrets, output):
                        yield text
                    if not output.failed_by_itself:
                        break
            output.check()
            yield await self._named(output.image, build, target, max_bytes)
            made = True
        finally:
            if not made:
                await finish(asyncio.create_task(self._undo(output)))

    async def sweep(self) -> None:
        """Removes the containers of builds that an earlier control plane has left."""
        labels = [f"{LABEL_INSTALLATION}={self._host.installation}", holder.LABEL_BUILD]
        filters = json.dumps({"label": labels})
        for one in await self._client.call("GET", "containers/json", {"all": True, "filters": filters}) or ():
            await self._remove(str(one["Id"]))

    async def _base(self, name: str) -> Mapping[str, Any]:
        image = await self._images.local(name) or await self._images.pull(name)
        seen: Mapping[str, Any] = await self._client.call("GET", f"images/{image.id}/json")
        if (seen.get("Config") or {}).get("OnBuild"):
            detail = f"{name} has ONBUILD triggers, which are not run here: write them into the Dockerfile"
            raise Problem("unsupported", detail, option="dockerfile", image=name)
        return seen

    @asynccontextmanager
    async def _held(self, network: str) -> AsyncIterator[holder.Inside]:
        build_id = random.token_hex(8)
        container = holder.name(build_id)
        try:
            body = holder.body(build_id, self._host, network)
            await self._client.call("POST", "containers/create", {"name": container}, body)
            await self._client.call("POST", f"containers/{container}/start")
            pid = int((await self._client.call("GET", f"containers/{container}/json"))["State"]["Pid"])
            groups = await asyncio.to_thread(Path(f"/proc/{pid}/cgroup").read_text)
            yield holder.Inside(container, pid, groups, reaches=bool(network))
        finally:
            await finish(asyncio.create_task(self._remove(container)))

    async def _built(
        self,
        build: Pinned,
        inside: holder.Inside,
        context: BinaryIO,
        secrets: Mapping[str, bytes],
        output: Output,
    ) -> AsyncGenerator[str, None]:
        mark = f".rollbox-{random.token_hex(8)}"
        dockerfile, named = f"{mark}/Dockerfile", {one: f"{mark}-{place}" for place, one in enumerate(secrets)}
        files = {dockerfile: build.dockerfile.encode(), **{named[one]: secrets[one] for one in secrets}}
        query: dict[str, str | int | bool] = {
            **inside.query,
            "dockerfile": dockerfile,
            # The builder reads no .dockerignore then: the client has.
            "excludes": json.dumps([mark]),
            "secrets": json.dumps([f"id={one},src={path}" for one, path in named.items()]),
            "buildargs": json.dumps({**inside.arguments, **build.wish.arguments}),
            "target": build.wish.target,
            "httpproxy": False,
            "identitylabel": False,
            "rm": True,
            "forcerm": True,
        }
        archive = _archive(contexts.beside(files), context)
        async with self._client.lines("POST", "build", query, archive) as lines:
            coming = asyncio.ensure_future(anext(lines, None))
            try:
                while (line := await self._next(coming)) is not None:
                    coming = asyncio.ensure_future(anext(lines, None))
                    if text := output.take(line):
                        yield text
            finally:
                await finish(asyncio.create_task(self._leave(inside.container, coming, lines, output)))

    async def _next(self, coming: asyncio.Future[dict[str, Any] | None]) -> dict[str, Any] | None:
        while not coming.done():
            await asyncio.wait([coming], timeout=LOOK_EVERY_S)
            self._check_room()
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
        await self._remove(container)
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

    async def _undo(self, output: Output) -> None:
        """Removes the images of a build's steps that have no name; one that another build goes on from stays."""
        for image in dict.fromkeys([*filter(None, [output.image]), *reversed(output.steps)]):
            try:
                seen = await self._client.call("GET", f"images/{image}/json")
                if not any(name != "<none>:<none>" for name in seen.get("RepoTags") or ()):
                    await self._client.call("DELETE", f"images/{seen['Id']}", {"noprune": True})
            except Missing:
                continue
            except Problem as problem:
                self._log.info("a step of a build stays", image=image, detail=problem.detail)

    async def _remove(self, container: str) -> None:
        try:
            await self._client.call("DELETE", f"containers/{container}", {"force": True, "v": True})
        except Missing:
            return
        except Problem as problem:
            self._log.warning("the container of a build is left", container=container, detail=problem.detail)

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
