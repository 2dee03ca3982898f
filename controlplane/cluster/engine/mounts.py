"""What an engine mounts into sandboxes: folders of this machine, read only, and scratch in memory.

A scratch is a volume of the engine's: it is mounted with the first container that has it, and gone with the last.
"""

import asyncio
import json
import re
from collections import Counter
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final

import structlog

from controlplane.cluster.engine.client import EngineClient, Missing
from controlplane.cluster.engine.containers import LABEL_INSTALLATION
from controlplane.cluster.engine.mount_bodies import Body, volume, volume_name
from controlplane.cluster.protocol import Bound, DatasetAt, ScratchAt
from controlplane.errors import Problem
from controlplane.model.dataset import DatasetSpec
from controlplane.model.units import in_words

# Of the memory of this machine, for one scratch: what is written there is in memory.
MOST_OF_MEMORY: Final = 2
# A folder on a file system that is gone may never answer.
_LOOK_WITHIN_S: Final = 5.0
_IN_FOLDER: Final = re.compile(r"(mkdir \S+: read-only file system)|(not a directory)|(is a directory)")


def in_the_way(problem: Problem, bound: Sequence[Bound]) -> Problem:
    """The failure of a start, typed if it is that the image has something else where the mounts are."""
    found = _IN_FOLDER.search(problem.detail)
    if not bound or found is None:
        return problem
    paths = ", ".join(one.path for one in bound)
    why = "the image has a file there, or begins in a folder that a data set lacks"
    return Problem("unsupported", f"not everything can be mounted at {paths}: {why} ({found[0]})", option="mounts")


class EngineMounts:
    """See ``Mounts``.

    Args:
        client: of the engine.
        installation: whose volumes these are.
        folders: that may be mounted; no other is, whatever is declared.
        memory_bytes: of this machine; 0: not known.
    """

    def __init__(self, client: EngineClient, installation: str, folders: Collection[str], memory_bytes: int) -> None:
        self._client = client
        self._installation = installation
        self._folders = frozenset(folders)
        self._memory_bytes = memory_bytes
        self._starting: Counter[str] = Counter()
        self._going: dict[str, asyncio.Event] = {}
        self._any = True  # whether there may be volumes
        self._log = structlog.get_logger("engine")

    async def check_scratch(self, key: str, size_bytes: int) -> None:
        """See ``Mounts.check_scratch``."""
        most = self._memory_bytes // MOST_OF_MEMORY
        if most and size_bytes > most:
            words = f"{in_words('_bytes', size_bytes)} is more than half of this machine's memory, where it would be"
            raise Problem("unsupported", f"a scratch of {words}", option="mounts", most=most)
        if (there := await self._volume(key)) is not None:
            self._same_size(there, ScratchAt("", key, size_bytes))

    def check_dataset(self, dataset: DatasetSpec) -> None:
        """See ``Mounts.check_dataset``."""
        if dataset.folder not in self._folders:
            detail = "on an engine data sets are the folders that `rollbox up --dataset NAME=FOLDER` names"
            raise Problem("unsupported", f"{dataset.source} cannot be mounted: {detail}", option="mounts")

    async def trouble(self, dataset: DatasetSpec) -> str:
        """See ``Mounts.trouble``."""
        try:
            async with asyncio.timeout(_LOOK_WITHIN_S):
                return await asyncio.to_thread(folder_trouble, Path(dataset.folder))
        except TimeoutError:
            return f"the folder {dataset.folder} does not answer"

    @asynccontextmanager
    async def made(self, bound: Sequence[Bound]) -> AsyncIterator[None]:
        """Keeps volumes while the block makes a container that has them.

        Raises:
            Problem: conflict, a scratch is there with another size; dataset_unavailable; the engine's.
        """
        scratch = {one.key: one for one in bound if isinstance(one, ScratchAt)}
        for one in bound:
            if isinstance(one, DatasetAt) and (trouble := await self.trouble(one.dataset)):
                raise Problem("dataset_unavailable", f"the data set {one.name} cannot be had: {trouble}")
        for key in scratch:
            while (going := self._going.get(key)) is not None:
                await going.wait()
            self._starting[key] += 1
        try:
            for one in scratch.values():
                self._any = True
                self._same_size(await self._create(one), one)
            yield
        finally:
            self._starting -= Counter(scratch.keys())

    async def sweep(self) -> None:
        """Removes the volumes that no container has. Cost: nothing without any; a call, and one for each volume."""
        if not self._any:
            return
        names = [str(volume["Name"]) for volume in await self._volumes()]
        self._any = bool(names or self._starting)
        for name in names:
            await self._remove(name)

    async def _remove(self, name: str) -> None:
        key = name.rpartition("-")[2]
        if self._starting[key] or key in self._going:
            return
        self._going[key] = gone = asyncio.Event()
        try:
            await self._client.call("DELETE", f"volumes/{name}")
        except Missing:
            pass
        except Problem as problem:
            if problem.details.get("engine_status") != str(int(HTTPStatus.CONFLICT)):
                self._log.warning("a scratch is left", volume=name, detail=problem.detail)
        finally:
            del self._going[key]
            gone.set()

    async def _create(self, one: ScratchAt) -> Mapping[str, Any]:
        try:
            made: Mapping[str, Any] = await self._client.call("POST", "volumes/create", None, self._body(one))
        except Problem:
            # Of two that ask at the same time Podman refuses one.
            if (there := await self._volume(one.key)) is None:
                raise
            return there
        return made

    async def _volume(self, key: str) -> Mapping[str, Any] | None:
        try:
            there: Mapping[str, Any] = await self._client.call("GET", f"volumes/{volume_name(self._installation, key)}")
        except Missing:
            return None
        return there

    async def _volumes(self) -> Sequence[Mapping[str, Any]]:
        filters = json.dumps({"label": [f"{LABEL_INSTALLATION}={self._installation}"]})
        answer = await self._client.call("GET", "volumes", {"filters": filters}) or {}
        return answer.get("Volumes") or ()

    def _body(self, one: ScratchAt) -> Body:
        return volume(self._installation, one, {LABEL_INSTALLATION: self._installation})

    def _same_size(self, there: Mapping[str, Any], wish: ScratchAt) -> None:
        wanted: Any = self._body(wish)["DriverOpts"]
        if (there.get("Options") or {}).get("o") != wanted["o"]:
            detail = "the scratch is there with another size: give it that, or another name"
            raise Problem("conflict", detail, option="mounts")


def folder_trouble(folder: Path, mountinfo: Path = Path("/proc/self/mountinfo")) -> str:
    """Why a folder of this machine cannot be a data set; empty: it can. Reads the disk."""
    if not folder.is_dir():
        return f"there is no folder {folder}"
    inside = [at for line in mountinfo.read_text().splitlines() if folder in (at := _mounted_at(line)).parents]
    if inside:
        # Would be left out, and nobody would know why files are missing.
        return f"{inside[0]} in it is a mount of its own: declare that as a data set"
    return ""


def _mounted_at(line: str) -> Path:
    # White space and backslashes are written as three octal digits.
    return Path(re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), line.split(" ")[4]))
