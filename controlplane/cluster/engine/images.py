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
from controlplane.cluster.engine.containers import SIDECAR_COMMAND
from controlplane.errors import Problem

# How engines and registries say that a name leads nowhere, or nowhere for us; anything else is worth another try.
_ABSENT: Final = re.compile(
    r"not found|manifest unknown|name unknown|does not exist|no such image|denied|unauthorized|invalid reference", re.I
)
# "no such host" and the like: the registry was not reached, so it has said nothing about the image.
_UNREACHED: Final = re.compile(r"no such host|dial tcp|timeout|connection refused|i/o|TLS|x509", re.I)
# Engines give this host to images that were built or loaded on the machine; a registry there would have a port.
_LOCAL_ONLY: Final = "localhost/"


class Images:
    """Resolves image names to what the engine can run."""

    def __init__(self, client: EngineClient) -> None:
        self._client = client
        self._pulling: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._log = structlog.get_logger("images")

    async def local(self, name: str) -> str | None:
        """The engine's id of an image that it already has; asks no registry. Cost: one or two calls, 10 ms."""
        for candidate in (name, f"localhost/{name}"):
            try:
                image = await self._client.call("GET", f"images/{candidate}/json")
            except Missing:
                continue
            return str(image["Id"])
        return None

    async def pull(self, name: str) -> str:
        """Pulls an image and returns its id. Concurrent pulls of one name take turns: the second finds it present.

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

    async def sidecar(self, binary: Path) -> str:
        """The id of the image that holds nothing but the sidecar's binary; made at most once per content."""
        content = _content(binary)
        # The digest is in the repository's name: podman 4.3 ignores the tag of an import.
        repository = f"rollbox/sidecar-{hashlib.sha256(content).hexdigest()[:16]}"
        if known := await self.local(f"{repository}:latest"):
            return known
        lines = await self._client.upload(
            "images/create", {"fromSrc": "-", "repo": repository, "tag": "latest"}, _layer(content)
        )
        for line in lines:
            if "error" in line:
                raise Problem("internal", f"the engine refused the sidecar's image: {line['error']}")
        made = await self.local(f"{repository}:latest")
        if made is None:
            raise Problem("internal", f"the engine took the sidecar's image but does not list {repository}")
        return made

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
    if _ABSENT.search(why) and not _UNREACHED.search(why):
        return Problem("image_not_found", f"{name}: {why}", image=name)
    return Problem("image_pull_failed", f"{name}: {why}", image=name, last_progress=last)


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
