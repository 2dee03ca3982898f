"""Images on the engine: looked up locally, pulled when missing; the sidecar's image is built from its binary."""

import asyncio
import hashlib
import io
import re
import tarfile
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing, suppress
from pathlib import Path
from typing import Any, Final
from weakref import WeakValueDictionary

import structlog

from controlplane.clock import Clock, SystemClock
from controlplane.cluster.engine import near
from controlplane.cluster.engine.client import EngineClient, Missing
from controlplane.cluster.engine.commit import COMMITS, hidden, shown
from controlplane.cluster.engine.containers import SIDECAR_COMMAND, Image
from controlplane.cluster.engine.listing import listed
from controlplane.cluster.engine.pulling import PullMeter
from controlplane.cluster.protocol import NO_LAYERS, ImageState, NodeImage, PrefetchProgress
from controlplane.errors import Problem
from controlplane.images import ImageConfig, names_registry, parse

# Errors of engines and registries for an image that does not exist or may not be pulled; other errors can be retried.
_ABSENT: Final = re.compile(
    r"not found|manifest unknown|name unknown|does not exist|no such image|denied|unauthorized|invalid reference", re.I
)
# Errors for a registry that cannot be reached, which say nothing about whether the image exists.
_UNREACHED: Final = re.compile(r"no such host|dial tcp|timeout|connection refused|i/o|TLS|x509", re.I)
# Their words for a name that is none to them, although it is well formed.
_NO_NAME: Final = re.compile(r"invalid reference format|parsing reference|repository name must|not a valid", re.I)
# Engines use this host name for images that were built or loaded locally; a registry on this machine would have a port.
_LOCAL_ONLY: Final = "localhost/"
# The node that all sandboxes of an engine are on.
NODE: Final = "this machine"
SIDECARS: Final = "rollbox/sidecar-"
# What is pulled before a sandbox needs it; further ones wait. Starts have places of their own.
MOST_PREFETCHED: Final = 3
# How often it is told how far a pull is.
TELL_EVERY_S: Final = 0.5
# What is said of an image beside its processes: in its configuration, and by an engine.
_SAID: Final = {"architecture": "Architecture", "created": "Created"}
# Architectures that a processor can run besides its own.
_ALSO: Final = {"amd64": ("386",), "arm64": ("arm",)}


class Images:
    """Resolves image names to images that the engine can run.

    Args:
        architecture: the machine's, as images name it; empty: unknown, so images of every architecture are accepted.
        commits: below which this installation has the images that were made in it.
        clock: the time of day; None: the machine's.
    """

    def __init__(
        self, client: EngineClient, architecture: str = "", commits: str = COMMITS, clock: Clock | None = None
    ) -> None:
        self._clock = clock or SystemClock()
        self._client = client
        self._commits = commits
        self._architecture = architecture
        self._pulling: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._meters: WeakValueDictionary[str, PullMeter] = WeakValueDictionary()
        self._prefetching = asyncio.Semaphore(MOST_PREFETCHED)
        self._used_ms: dict[str, int] = {}
        self._log = structlog.get_logger("images")

    async def local(self, name: str) -> Image | None:
        """An image that the engine has already, or None; no registry is contacted. Cost: one to three calls, 10 ms.

        The digest in a name may be a registry's, or the engine's own for an image that no registry has.

        Raises:
            Problem: unsupported, when it is for another architecture.
        """
        image = await self._inspected(name)
        if image is None:
            return None
        self._check(name, str(image.get("Architecture") or ""))
        return Image(str(image["Id"]), bool((image.get("Config") or {}).get("Healthcheck")))

    async def config(self, name: str) -> ImageConfig | None:
        """What an image that is here says of its processes; None: it is not here. Cost: as ``local``.

        Raises:
            Problem: unsupported, when it is malformed.
        """
        image = await self._inspected(name)
        if image is None:
            return None
        said = {ours: image.get(theirs) for ours, theirs in _SAID.items()}
        return ImageConfig.read(name, Image(str(image["Id"])).digest, said, image.get("Config"))

    async def _inspected(self, name: str) -> Mapping[str, Any] | None:
        for candidate in _candidates(name):
            try:
                image: Mapping[str, Any] = await self._client.call("GET", f"images/{candidate}/json")
            except Missing:
                continue
            except Problem as problem:
                raise _misnamed(name, problem) from problem
            if not hidden(name, image.get("RepoTags") or (), self._commits):
                return image
        return None

    async def pull(self, name: str) -> Image:
        """Pulls an image. Concurrent pulls of one image wait for each other, and the second one finds it present.

        Raises:
            Problem: image_not_found, image_pull_failed.
        """
        lock = self._pulling.setdefault(name, asyncio.Lock())
        async with lock:
            if present := await self.local(name):
                return present
            await self._come(name)
            if present := await self.local(name):
                await self._tag(name, present)
                return present
        raise Problem("image_pull_failed", f"the engine says that it pulled {name} but does not have it", image=name)

    async def _come(self, name: str) -> None:
        """Pulls an image that is not here; one that cannot come from anywhere is told at once."""
        if name.startswith(_LOCAL_ONLY):
            raise await self._unnamed(name)
        self._log.info("pulling image", image=name)
        try:
            await self._pull(name)
        except Problem as problem:
            if problem.code != "image_not_found":
                raise
            raise await self._absent(name, problem.detail.removeprefix(f"{name}: ")) from problem

    async def _unnamed(self, name: str) -> Problem:
        """What is told of a name that the engine does not know, and that names no registry to ask."""
        why = "the engine has no such image, and its name names no registry"
        problem = await self._absent(name, why)
        problem.details["reason"] = "local_image"
        return problem

    async def _absent(self, name: str, why: str) -> Problem:
        said = ""
        # Without the list the answer lacks the hint, and is no other one.
        with suppress(Problem):
            said = near.hint(name, [one for image in await self.all() for one in image.names])
        return Problem("image_not_found", f"{name}: {why}" + (f"; {said}" if said else ""), image=name)

    async def prefetch(
        self, name: str, nodes: int | None = None, layers: Mapping[str, int] = NO_LAYERS
    ) -> AsyncGenerator[PrefetchProgress, None]:
        """See ``NodeImages.prefetch``; there is one machine. A pull ends with the iterator that has begun it."""
        del nodes, layers
        if await self.local(name) is None:
            meter = self._meters.setdefault(name, PullMeter())
            async with aclosing(self._told(name, meter)) as told:
                async for progress in told:
                    yield progress
                    if progress.state == "failed":
                        return
        yield PrefetchProgress(NODE, "here")

    async def _told(self, name: str, meter: PullMeter) -> AsyncGenerator[PrefetchProgress, None]:
        pulling = asyncio.create_task(self._in_turn(name), name=f"prefetch {name}")
        try:
            while not pulling.done():
                yield PrefetchProgress(NODE, "pulling", meter.done_bytes, meter.total_bytes)
                await asyncio.wait([pulling], timeout=TELL_EVERY_S)
            try:
                await pulling
            except Problem as problem:
                yield PrefetchProgress(NODE, "failed", meter.done_bytes, meter.total_bytes, problem)
        finally:
            pulling.cancel()
            await asyncio.wait([pulling])

    async def _in_turn(self, name: str) -> None:
        async with self._prefetching:
            await self.pull(name)

    async def all(self) -> Sequence[NodeImage]:
        """See ``NodeImages.all``; without our own parts'."""
        told = [self._image(one) for one in await listed(self._client)]
        return [one for one in told if not any(SIDECARS in name for name in one.names)]

    def used(self, image: Image) -> None:
        """Notes that a sandbox runs from an image."""
        self._used_ms[image.digest] = self._clock.now_ms()

    def _image(self, told: Mapping[str, Any]) -> NodeImage:
        image = Image(str(told["Id"]))
        names = shown(told.get("RepoTags") or ())
        size_bytes, last_used_ms = int(told.get("Size") or 0), self._used_ms.get(image.digest)
        return NodeImage(NODE, names, image.digest, size_bytes, lazy=False, last_used_ms=last_used_ms)

    async def find(self, name: str, *, ask_registry: bool) -> ImageState:
        """Where an image is, without pulling it.

        Raises:
            Problem: image_not_found, if its registry says so; unsupported, if it is for another architecture.
        """
        if await self.local(name) is not None:
            return "here"
        if not ask_registry:
            return "unknown"
        if name.startswith(_LOCAL_ONLY):
            raise await self._unnamed(name)
        try:
            await self._client.call("GET", f"distribution/{name}/json")
        except Problem as problem:
            refused = _refused(name, problem.detail, "")
            if isinstance(problem, Missing) or refused.code == "image_not_found":
                raise await self._absent(name, problem.detail) from problem
            return "unknown"
        return "elsewhere"

    async def sidecar(self, binary: Path) -> str:
        """The id of an image that contains only the sidecar's binary; built once per content of the binary.

        Args:
            binary: the sidecar's, linked statically.

        Raises:
            Problem: internal, the engine refuses the image or does not list it.
        """
        content = _content(binary)
        # The digest is in the repository's name and not in the tag, since Podman 4.3 ignores the tag of an import.
        repository = f"rollbox/sidecar-{hashlib.sha256(content).hexdigest()[:16]}"
        if known := await self.local(f"{repository}:latest"):
            return known.id
        lines = await self._client.upload(
            "images/create", {"fromSrc": "-", "repo": repository, "tag": "latest"}, _layer(content)
        )
        for line in lines:
            if "error" in line:
                raise Problem("internal", f"the engine refused the sidecar's image: {line['error']}")
        made = await self.local(f"{repository}:latest")
        if made is None:
            raise Problem("internal", f"the engine took the sidecar's image but does not list {repository}")
        return made.id

    def _check(self, name: str, architecture: str) -> None:
        # Without this check the target would start, since its main process is our own binary, and then no command
        # would.
        if self._architecture and architecture not in ("", self._architecture, *_ALSO.get(self._architecture, ())):
            detail = f"image {name} is for {architecture}, this machine is {self._architecture}"
            raise Problem("unsupported", detail, option="image", architecture=architecture)

    async def _tag(self, name: str, image: Image) -> None:
        """Gives an image that was pulled by digest its tag too, by which it is found when its registry is away."""
        reference = parse(name)
        if reference.digest and reference.tag:
            tag = {"repo": reference.name, "tag": reference.tag}
            try:
                await self._client.call("POST", f"images/{image.id}/tag", tag)
            except Problem as problem:
                self._log.warning("image not tagged", image=name, detail=problem.detail)

    async def _pull(self, name: str) -> None:
        last = ""
        try:
            async with self._client.lines("POST", "images/create", _reference(name)) as lines:
                async for line in lines:
                    if "error" in line:
                        raise _refused(name, str(line["error"]), last)
                    if (meter := self._meters.get(name)) is not None:
                        meter.take(line)
                    last = str(line.get("status", "")) or last
        except Missing as error:
            raise Problem("image_not_found", f"{name}: {error.detail}", image=name) from error
        except Problem as error:
            if error.code in ("image_not_found", "image_pull_failed"):
                raise
            raise _refused(name, error.detail, last) from error


def _refused(name: str, why: str, last: str) -> Problem:
    # The image's name is removed before matching, since it may contain any of these words.
    words = why.replace(_repository(name), "")
    if _ABSENT.search(words) and not _UNREACHED.search(words):
        return Problem("image_not_found", f"{name}: {why}", image=name)
    return Problem("image_pull_failed", f"{name}: {why}", image=name, last_progress=last)


def _misnamed(name: str, problem: Problem) -> Problem:
    """What an engine says of a name is the caller's to mend; all else is what it was."""
    if problem.code in ("internal", "unsupported") and _NO_NAME.search(problem.detail):
        return Problem("invalid_argument", f"image {name}: {problem.detail}", option="image")
    return problem


def _repository(name: str) -> str:
    """An image's name without tag and digest, but with a registry's port."""
    folder, slash, last = name.partition("@")[0].rpartition("/")
    return f"{folder}{slash}{last.partition(':')[0]}"


def _reference(name: str) -> dict[str, str]:
    """The query parameters for pulling one image; without a tag the engine would pull all of them."""
    if "@" in name:
        # Without its tag: Podman 4.3 refuses a name that has both.
        return {"fromImage": f"{_repository(name)}@{name.partition('@')[2]}"}
    return {"fromImage": name} if ":" in name.rpartition("/")[2] else {"fromImage": name, "tag": "latest"}


def _candidates(name: str) -> tuple[str, ...]:
    """The names under which the engine may have an image."""
    _, at, digest = name.partition("@")
    # What names no registry may also be an image that was built or loaded here.
    first, slash, _ = name.partition("/")
    named = bool(slash) and names_registry(first)
    if not at:
        return (name,) if named else (name, f"{_LOCAL_ONLY}{name}")
    repository = f"{_repository(name)}@{digest}"
    return (digest, repository) if named else (digest, repository, f"{_LOCAL_ONLY}{repository}")


def _content(binary: Path) -> bytes:
    # A blocking read of some MiB, once, before the control plane serves requests.
    return binary.read_bytes()


def _layer(binary: bytes) -> bytes:
    """A tar archive with the sidecar's binary as its only file; deterministic."""
    entry = tarfile.TarInfo(SIDECAR_COMMAND.lstrip("/"))
    entry.size = len(binary)
    entry.mode = 0o755
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        archive.addfile(entry, io.BytesIO(binary))
    return buffer.getvalue()
