"""What a control plane that has ended in the middle of a build leaves, which the next one removes.

Each build has a file in the state folder for as long as it runs, which says when it began. The images of its steps have
a label of the installation, so that no image of anybody else is taken for one.
"""

import asyncio
import json
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import structlog

from controlplane.cluster.engine.build import files, holder
from controlplane.cluster.engine.client import EngineClient, Missing
from controlplane.cluster.engine.containers import LABEL_INSTALLATION, Host
from controlplane.cluster.engine.listing import listed
from controlplane.errors import Problem

LABEL_STEPS: Final = "rollbox.steps"
# How often it is looked again: what others go on from stays, and is no reason to look for ever.
MOST_LOOKS: Final = 10
# Between two words of a build that runs that it does.
MOST_SILENT_S: Final = 5
_NAMELESS: Final = "<none>:<none>"


@dataclass(frozen=True, slots=True)
class _Begun:
    """A build that has begun and not been cleaned up.

    Attributes:
        until_s: when it was known to run last.
        images: ids of those that it reads.
    """

    build_id: str
    begun_s: int
    until_s: int
    images: Collection[str]

    def has(self, container: Mapping[str, Any]) -> bool:
        """Whether one of the builder's containers is its own."""
        if f"-{self.build_id}:" in str(container.get("Image")):
            return True
        made_s = datetime.fromisoformat(str(container["Created"])).timestamp()
        return container["ImageID"] in self.images and self.begun_s <= made_s <= self.until_s + MOST_SILENT_S


class Leftovers:
    """The builds of this installation that have begun and are not cleaned up.

    Args:
        client: of the engine.
        host: files and names of this machine.
    """

    def __init__(self, client: EngineClient, host: Host) -> None:
        self._client = client
        self._host = host
        self._folder = host.state_dir / "builds"
        self._running: set[str] = set()
        self._looks = MOST_LOOKS  # that are left
        self._alone = asyncio.Lock()
        self._log = structlog.get_logger("builds")

    async def begin(self, build_id: str, now_s: int, images: Collection[str] = ()) -> None:
        """A build begins, which reads these images (ids)."""
        async with self._alone:
            self._folder.mkdir(mode=0o700, exist_ok=True)
            (self._folder / build_id).write_text(json.dumps({"begun_s": now_s, "images": sorted(images)}))
            self._running.add(build_id)

    def goes_on(self, build_id: str) -> None:
        """It runs still; its file says until when."""
        (self._folder / build_id).touch()

    def end(self, build_id: str, *, is_clean: bool) -> None:
        """It has ended; what it could not remove is looked for again."""
        self._running.discard(build_id)
        if is_clean:
            (self._folder / build_id).unlink(missing_ok=True)
        else:
            self._looks = MOST_LOOKS

    async def sweep(self) -> None:
        """Removes what ended builds have left; while others run, nothing: steps may be theirs, too.

        Cost: nothing without such builds; else a few calls of the engine.
        """
        if not self._looks or self._alone.locked():
            return
        async with self._alone:
            if self._running:
                return
            self._looks -= 1
            begun = self._begun()
            # The builder may be at work until now: what it still makes is found by the next look.
            if await self._removed(begun) and self._looks:
                return
            self._looks = 0
            for one in begun:
                (self._folder / one.build_id).unlink(missing_ok=True)

    async def make_room(self) -> None:
        """Removes what earlier builds have left for later ones: steps without an image. Beside a build: nothing."""
        if self._alone.locked():
            return
        async with self._alone:
            if not self._running:
                await self._remove_steps(await self._steps())

    async def _removed(self, begun: Sequence[_Begun]) -> bool:
        """Whether there was something."""
        there = await self._remove_holders()
        if begun:
            steps = await self._steps()
            there |= await self._remove_working(begun, {str(one["Id"]).removeprefix("sha256:") for one in steps})
            since_s = min(one.begun_s for one in begun)
            there |= await self._remove_steps([one for one in steps if int(one.get("Created") or 0) >= since_s])
        for one in begun:
            there |= await self.remove_image(files.name(self._host.installation, one.build_id))
        return there

    async def remove_container(self, container: str) -> bool:
        """Removes a container of a build; whether it was there."""
        return await self._delete(f"containers/{container}", {"force": True, "v": True})

    async def remove_image(self, image: str) -> bool:
        """Removes an image, or a name of one; whether it was there."""
        return await self._delete(f"images/{image}", {"noprune": True})

    def _begun(self) -> list[_Begun]:
        return [_read(file) for file in sorted(self._folder.glob("*"))]

    async def _steps(self) -> Sequence[Mapping[str, Any]]:
        label = f"{LABEL_STEPS}={self._host.installation}"
        return await listed(self._client, {"all": True, "filters": json.dumps({"label": [label]})})

    async def _remove_holders(self) -> bool:
        labels = [f"{LABEL_INSTALLATION}={self._host.installation}", holder.LABEL_BUILD]
        filters = json.dumps({"label": labels})
        told = await self._client.call("GET", "containers/json", {"all": True, "filters": filters}) or ()
        return any([await self.remove_container(str(one["Id"])) for one in told])

    async def _remove_working(self, begun: Sequence[_Begun], steps: Collection[str]) -> bool:
        """Removes what the builder worked with, where it has ended together with the control plane.

        Such a container has no label: one of a step's image is ours, and one of an image that the build reads if it was
        made while the build ran.
        """
        query = {"all": True, "external": True}
        told = await self._client.call("GET", "libpod/containers/json", query) or ()
        found = [one for one in told if one.get("State") == "storage" and one.get("Command") == ["buildah"]]
        ours = [one for one in found if one["ImageID"] in steps or any(made.has(one) for made in begun)]
        return any([await self._delete(f"libpod/containers/{one['Id']}", {"force": True}) for one in ours])

    async def _remove_steps(self, steps: Sequence[Mapping[str, Any]]) -> bool:
        """Removes images of steps that have no name, the newest first; those that others go on from stay."""
        nameless = [one for one in steps if not _is_named(one)]
        nameless.sort(key=lambda one: int(one["Created"]), reverse=True)
        return any([await self.remove_image(str(one["Id"])) for one in nameless])

    async def _delete(self, path: str, query: dict[str, str | int | bool]) -> bool:
        try:
            await self._client.call("DELETE", path, query)
        except Missing:
            return False
        except Problem as problem:
            self._log.info("something of a build stays", what=path, detail=problem.detail)
        return True


def _read(file: Path) -> _Begun:
    told: dict[str, Any] = {}
    # One that was not written to its end says nothing: no step of it was made.
    with suppress(ValueError):
        told = json.loads(file.read_text())
    seen_s = int(file.stat().st_mtime)
    return _Begun(file.name, int(told.get("begun_s", seen_s)), seen_s, told.get("images", ()))


def _is_named(image: Mapping[str, Any]) -> bool:
    return any(name != _NAMELESS for name in image.get("RepoTags") or ())
