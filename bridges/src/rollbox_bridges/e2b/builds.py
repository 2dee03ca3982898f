"""Builds of templates: each is a build of an image, which then has the template's name for each of its tags."""

from __future__ import annotations

import asyncio
import tempfile
import time
import uuid
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from rollbox import BuildOptions, Client, SandboxError
from rollbox.printable import what_broke
from rollbox_bridges.e2b import names
from rollbox_bridges.e2b.recipes import BASES, Recipe
from rollbox_bridges.e2b.settings import Settings
from rollbox_bridges.e2b.uploads import Uploads
from rollbox_bridges.e2b.words import Refusal
from rollbox_bridges.faults import sentence

_MOST: Final = 1_000
_MOST_LINES: Final = 10_000
_MOST_LOGS: Final = 100


@dataclass(eq=False)
class Build:
    """One build.

    Attributes:
        key: of its owner.
        name, tags: of its template.
        status: "waiting" until it is started, "building", "ready" or "error".
        why: it has failed.
        lines: what the builder has said, each with its time.
    """

    key: str
    name: str
    tags: Sequence[str]
    id: str = field(default_factory=lambda: str(uuid.uuid4()))
    status: str = "waiting"
    why: str = ""
    lines: list[tuple[float, str]] = field(default_factory=list)
    task: asyncio.Task[None] | None = None

    def told(self, offset: int) -> dict[str, Any]:
        """Its status in E2B's form, with what was said from an offset on."""
        entries = [
            {"timestamp": datetime.fromtimestamp(at, UTC).isoformat(), "message": text, "level": "info"}
            for at, text in self.lines[offset : offset + _MOST_LOGS]
        ]
        told = {"templateID": self.name, "buildID": self.id, "status": self.status, "logs": [], "logEntries": entries}
        return {**told, "reason": {"message": self.why, "logEntries": []}} if self.why else told

    def says(self, text: str) -> None:
        """Keep lines of the builder; the last of too many are not kept."""
        for line in text.splitlines():
            if len(self.lines) < _MOST_LINES:
                self.lines.append((time.time(), line))


class Builds:
    """The builds of a bridge, which end with it.

    Args:
        settings: of the bridge.
        uploads: files of steps.
    """

    def __init__(self, settings: Settings, uploads: Uploads) -> None:
        self._settings = settings
        self._uploads = uploads
        self._kept: OrderedDict[str, Build] = OrderedDict()

    def request(self, key: str, name: str, tags: Sequence[str]) -> Build:
        """Make one that can be started.

        Raises:
            Refusal: there are too many that have not ended.
        """
        if len(self._kept) >= _MOST:
            over = next((one for one in self._kept.values() if one.status in {"waiting", "ready", "error"}), None)
            if over is None:
                raise Refusal(429, f"{_MOST} builds are under way", "rate_limited")
            self._kept.pop(over.id)
        made = Build(key, name, tags)
        self._kept[made.id] = made
        return made

    def known(self, key: str, name: str, build_id: str) -> Build:
        """A build of an owner.

        Raises:
            Refusal: there is none; the builds of a bridge end with it.
        """
        found = self._kept.get(build_id)
        if found is None or (found.key, found.name) != (key, name):
            raise Refusal(404, f"there is no build {build_id[:64]!r} of {name[:128]!r} at this bridge", "not_found")
        return found

    def start(self, build: Build, client: Client, recipe: Recipe) -> None:
        """Begin to build.

        Raises:
            Refusal: it was started before.
        """
        if build.task is not None:
            raise Refusal(409, f"the build {build.id} was started before", "conflict")
        build.status = "building"
        build.task = asyncio.create_task(self._run(build, client, recipe), name="rollbox bridge template")

    async def _run(self, build: Build, client: Client, recipe: Recipe) -> None:
        try:
            await self._built(build, client, recipe)
            build.status = "ready"
        except (SandboxError, Refusal) as error:
            build.why = sentence(error) if isinstance(error, SandboxError) else error.message
            build.status = "error"
        except Exception as error:
            build.why, build.status = f"the bridge has failed: {what_broke(error)}", "error"
            raise

    async def _built(self, build: Build, client: Client, recipe: Recipe) -> None:
        options: BuildOptions = {}
        if self._settings.build_egress is not None:
            options["egress"] = self._settings.build_egress
        base = await self._base(client, recipe)
        with tempfile.TemporaryDirectory(prefix="rollbox-template-") as folder:
            await asyncio.to_thread(Path(folder, "Dockerfile").write_text, recipe.dockerfile(base))
            for files in recipe.files:
                await self._uploads.unpack(build.key, files, Path(folder, files))
            building = client.build(folder, **options)
            async for progress in building:
                build.says(progress.text)
        if building.image is None:
            raise Refusal(500, "the build ended without an image", "internal")
        await names.give(client, building.image, build.name, build.tags)

    async def _base(self, client: Client, recipe: Recipe) -> str:
        if recipe.base in BASES:
            return self._settings.default_image
        mapped: Mapping[str, str] = self._settings.templates
        if recipe.base in mapped:
            return mapped[recipe.base]
        found = await names.find(client, recipe.base) if recipe.of_template else None
        if found is None and recipe.of_template:
            raise Refusal(404, f"the template {recipe.base[:200]!r} does not exist", "not_found")
        return found.image if found is not None else recipe.base

    async def aclose(self) -> None:
        """End all that are under way."""
        tasks = [one.task for one in self._kept.values() if one.task is not None and not one.task.done()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
