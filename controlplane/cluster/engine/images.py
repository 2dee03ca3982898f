"""Images on the engine: found locally first, pulled when absent; the sidecar's is made from its binary."""

import asyncio
import hashlib
import io
import re
import tarfile
from pathlib import Path
from typing import Final
from weakref import WeakValueDictionary

import structlog

from controlplane.cluster.engine.client import EngineClient, Missing
from controlplane.cluster.engine.containers import SIDECAR_COMMAND, Image
from controlplane.cluster.protocol import ImageState
from controlplane.errors import Problem

# How engines and registries say that a name leads nowhere, or nowhere for us; anything else is worth another try.
_ABSENT: Final = re.compile(
    r"not found|manifest unknown|name unknown|does not exist|no such image|denied|unauthorized|invalid reference", re.I
)
# "no such host" and the like: the registry was not reached, so it has said nothing about the image.
_UNREACHED: Final = re.compile(r"no such host|dial tcp|timeout|connection refused|i/o|TLS|x509", re.I)
# Engines give this host to images that were built or loaded on the machine; a registry there would have a port.
_LOCAL_ONLY: Final = "localhost/"
# What a processor runs besides its own.
_ALSO: Final = {"amd64": ("386",), "arm64": ("arm",)}


class Images:
    """Resolves image names to what the engine can run.

    Args:
        architecture: of the machine, in the words of images; empty: not known, everything is taken.
    """

    def __init__(self, client: EngineClient, architecture: str = "") -> None:
        self._client = client
        self._architecture = architecture
        self._pulling: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._log = structlog.get_logger("images")

    async def local(self, name: str) -> Image | None:
        """An image that it already has; asks no registry. Cost: one or two calls, 10 ms.

        Raises:
            Problem: unsupported, when it is for another architecture.
        """
        for candidate in (name, f"localhost/{name}"):
            try:
                image = await self._client.call("GET", f"images/{candidate}/json")
            except Missing:
                continue
            self._check(name, str(image.get("Architecture") or ""))
            return Image(str(image["Id"]), bool((image.get("Config") or {}).get("Healthcheck")))
        return None

    async def pull(self, name: str) -> Image:
        """Pulls an image. Concurrent pulls of one name take turns: the second finds it present.

        Raises:
            Problem: image_not_found, image_pull_failed.
        """
        lock = self._pulling.setdefault(name, asyncio.Lock())
        async with lock:
            if present := await self.local(name):
                return present
            self._log.info("pulling", image=name)
            await self._pull(name)
            if present := await self.local(name):
                return present
        raise Problem("image_pull_failed", f"the engine says that it pulled {name} but does not have it", image=name)

    async def find(self, name: str, *, ask_registry: bool) -> ImageState:
        """Where an image is, without pulling it.

        Raises:
            Problem: image_not_found, when its registry says so; unsupported, when it is for another architecture.
        """
        if await self.local(name) is not None:
            return "here"
        if not ask_registry:
            return "unknown"
        try:
            await self._client.call("GET", f"distribution/{name}/json")
        except Problem as problem:
            refused = _refused(name, problem.detail, "")
            if isinstance(problem, Missing) or refused.code == "image_not_found":
                raise Problem("image_not_found", refused.detail, image=name) from problem
            return "unknown"
        return "elsewhere"

    async def sidecar(self, binary: Path) -> str:
        """The id of the image that holds nothing but the sidecar's binary; made at most once per content."""
        content = _content(binary)
        # The digest is in the repository's name: podman 4.3 ignores the tag of an import.
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
        # Our own program in the target would start, and then no command of the image.
        if self._architecture and architecture not in ("", self._architecture, *_ALSO.get(self._architecture, ())):
            detail = f"image {name} is for {architecture}, this machine is {self._architecture}"
            raise Problem("unsupported", detail, option="image", architecture=architecture)

    async def _pull(self, name: str) -> None:
        last = ""
        try:
            async with self._client.lines("POST", "images/create", _reference(name)) as lines:
                async for line in lines:
                    if "error" in line:
                        raise _refused(name, str(line["error"]), last)
                    last = str(line.get("status", "")) or last
        except Missing as error:
            raise Problem("image_not_found", f"{name}: {error.detail}", image=name) from error
        except Problem as error:
            if error.code in ("image_not_found", "image_pull_failed"):
                raise
            raise _refused(name, error.detail, last) from error


def _refused(name: str, why: str, last: str) -> Problem:
    if name.startswith(_LOCAL_ONLY):
        return Problem(
            "image_not_found", f"{name}: the engine has no such image, and its name names no registry", image=name
        )
    # Without the name, which may hold any of these words.
    words = why.replace(_repository(name), "")
    if _ABSENT.search(words) and not _UNREACHED.search(words):
        return Problem("image_not_found", f"{name}: {why}", image=name)
    return Problem("image_pull_failed", f"{name}: {why}", image=name, last_progress=last)


def _repository(name: str) -> str:
    """A name without tag and digest; the colon of a registry's port stays."""
    folder, slash, last = name.partition("@")[0].rpartition("/")
    return f"{folder}{slash}{last.partition(':')[0]}"


def _reference(name: str) -> dict[str, str]:
    """The engine's query for one image; without a tag it would pull them all."""
    last = name.rpartition("/")[2]
    return {"fromImage": name} if ":" in last or "@" in last else {"fromImage": name, "tag": "latest"}


def _content(binary: Path) -> bytes:
    # Some MiB, once, before anything is served.
    return binary.read_bytes()


def _layer(binary: bytes) -> bytes:
    """A tar with the sidecar as its only file; the same bytes for the same binary."""
    entry = tarfile.TarInfo(SIDECAR_COMMAND.lstrip("/"))
    entry.size = len(binary)
    entry.mode = 0o755
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        archive.addfile(entry, io.BytesIO(binary))
    return buffer.getvalue()
