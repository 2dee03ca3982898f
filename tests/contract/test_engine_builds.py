"""Builds of an engine whose builder fails by itself."""

from __future__ import annotations

import asyncio
import io
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, cast

import pytest

from controlplane.cluster.dockerfiles.recipe import recipe
from controlplane.cluster.engine.build import builds as module
from controlplane.cluster.engine.build.builds import Builds, Pinned
from controlplane.cluster.engine.build.leftovers import Leftovers
from controlplane.cluster.engine.client import Missing
from controlplane.cluster.protocol.builds import BuildWish, Built
from controlplane.errors import Problem

ID = "f" * 64
GONE = {"error": "checking if cached image exists from a previous build: getting top layer info: layer not known"}
MADE = {"aux": {"ID": f"sha256:{ID}"}}
FAILED = {"error": 'building at STEP "RUN false": exit status 1'}


@pytest.fixture(autouse=True)
def room(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever this machine has."""
    monkeypatch.setattr(module, "free_bytes", lambda _: 8 << 30)


class Engine:
    """Answers each build with the next of its ends."""

    def __init__(self, *ends: dict[str, Any]) -> None:
        self.ends = list(ends)
        self.left: set[str] = set()
        self.removed = asyncio.Event()

    async def call(self, method: str, path: str, query: Any = None, body: Any = None) -> Any:
        if path == "info":
            return {"DockerRootDir": "/"}
        if path.endswith("/json") and query is not None:
            return []
        if path == "containers/create":
            self.left.add(query["name"])
        elif method == "DELETE":
            self.left.discard(path.removeprefix("containers/"))
            self.removed.set()
        return {"Id": ID, "State": {"Pid": os.getpid()}, "RootFS": {}, "Size": 7}

    @asynccontextmanager
    async def lines(self, _: str, path: str, query: Any, archive: Any) -> AsyncIterator[AsyncIterator[dict[str, Any]]]:
        assert (path, [piece async for piece in archive] != []) == ("build", True)

        async def told() -> AsyncIterator[dict[str, Any]]:
            yield {"stream": "STEP 1/1\n"}
            if not self.ends:
                await self.removed.wait()
                yield FAILED
                return
            yield self.ends.pop(0)

        yield told()


NOON_S = 1_796_040_000
STAYS = {"old-step", "named", "earlier", "another", "no-builder"}


class Left:
    """An engine with what a build has left: its container, its files, a step; and with what is not the build's."""

    STEPS: Final = {"old-step": NOON_S - 9, "step-1": NOON_S + 5, "step-2": NOON_S + 6, "named": NOON_S + 7}

    WORKING: Final = tuple(
        {"Id": name, "ImageID": image, "Created": f"2026-11-30T{at}.5Z", "Image": named, "State": state}
        for name, image, at, named, state in (
            ("of-step", "step-1", "23:00:00", "x", "storage"),
            ("of-files", "f", "23:00:00", "localhost/rollbox-files-i-b1:latest", "storage"),
            ("of-base", "base", "12:00:01", "x", "storage"),
            ("earlier", "base", "11:59:59", "x", "storage"),
            ("another", "other", "12:00:01", "x", "storage"),
            ("no-builder", "step-1", "12:00:01", "x", "running"),
        )
    )

    def __init__(self) -> None:
        self.there = {"holder", "localhost/rollbox-files-i-b1:latest", "old-step", "step-1", "named"}
        self.there |= {str(one["Id"]) for one in self.WORKING}
        self.asked = 0

    async def call(self, method: str, path: str, query: Any = None, body: Any = None) -> Any:
        self.asked += 1
        if path == "containers/json":
            return [{"Id": "holder"}] if "holder" in self.there else []
        if path == "libpod/containers/json":
            return [{**one, "Command": ["buildah"]} for one in self.WORKING if one["Id"] in self.there]
        if path == "images/json":
            return [
                {"Id": one, "Created": at_s, "RepoTags": ["localhost/x:1"] if one == "named" else ["<none>:<none>"]}
                for one, at_s in self.STEPS.items()
                if one in self.there
            ]
        name = path.removeprefix("libpod/").partition("/")[2]
        if method != "DELETE" or name not in self.there:
            raise Missing("not_found", path)
        self.there.discard(name)
        return None


async def built(engine: Engine, folder: Path) -> list[str | Built]:
    host = SimpleNamespace(installation="i", sidecar_image="s", target_binary="/t", state_dir=folder, egress=())
    builds = Builds(cast("Any", engine), cast("Any", None), cast("Any", host), cast("Any", None))
    judged = recipe("FROM scratch", {}, "", owner="me", platform="linux/amd64")
    pinned = Pinned("tag", BuildWish("FROM scratch", {}, "", "digest"), judged, {}, ())
    return [said async for said in builds.run(pinned, "localhost/x:1", empty(), {}, max_bytes=100)]


def empty() -> io.BytesIO:
    return io.BytesIO(bytes(1024))


async def test_a_builder_that_lost_a_step_to_another_build_begins_once_more(tmp_path: Path) -> None:
    engine = Engine(GONE, MADE)
    assert await built(engine, tmp_path) == ["STEP 1/1\n", "STEP 1/1\n", Built(f"sha256:{ID}", 7)]
    assert engine.left == set()


async def test_a_disk_without_room_ends_a_build_and_nothing_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = iter([1 << 30, 8 << 30, 8 << 30, 1 << 30])
    monkeypatch.setattr(module, "free_bytes", lambda _: next(free))
    monkeypatch.setattr(module, "LOOK_EVERY_S", 0.01)
    engine = Engine()
    with pytest.raises(Problem, match="1073741824 bytes free") as caught:
        await built(engine, tmp_path)
    assert (caught.value.code, engine.left, [*(tmp_path / "builds").iterdir()]) == ("capacity_unavailable", set(), [])


async def test_what_an_ended_control_plane_has_left_is_removed_once(tmp_path: Path) -> None:
    engine = Left()
    host = SimpleNamespace(installation="i", state_dir=tmp_path)
    before = Leftovers(cast("Any", engine), cast("Any", host))
    await before.begin("b1", NOON_S, ["base"])
    await before.begin("b2", NOON_S + 9)
    os.utime(tmp_path / "builds" / "b1", (NOON_S, NOON_S))
    after = Leftovers(cast("Any", engine), cast("Any", host))
    await after.sweep()
    assert engine.there == STAYS
    # The builder was at work until now: what it still makes is found by the next look.
    engine.there.add("step-2")
    await after.sweep()
    await after.sweep()
    assert (engine.there, [*(tmp_path / "builds").iterdir()]) == (STAYS, [])
    asked = engine.asked
    await after.sweep()
    assert engine.asked == asked
    # Beside a build that runs nothing is removed: steps may be its own.
    await after.begin("b3", NOON_S)
    after.end("b3", is_clean=False)
    await after.begin("b4", NOON_S)
    await after.sweep()
    assert engine.asked == asked
    after.end("b4", is_clean=True)
    await after.sweep()
    await after.sweep()
    assert [*(tmp_path / "builds").iterdir()] == []


async def test_where_room_is_short_steps_without_an_image_go_first(tmp_path: Path) -> None:
    engine = Left()
    leftovers = Leftovers(cast("Any", engine), cast("Any", SimpleNamespace(installation="i", state_dir=tmp_path)))
    await leftovers.begin("b1", NOON_S)
    await leftovers.make_room()
    assert engine.asked == 0
    leftovers.end("b1", is_clean=True)
    await leftovers.make_room()
    assert {"old-step", "step-1"} & engine.there == set()
    assert "named" in engine.there


@pytest.mark.parametrize(
    ("ends", "code"), [((*[GONE] * module.TRIES, MADE), "internal"), ((FAILED, MADE), "build_failed")]
)
async def test_other_ends_are_told(ends: tuple[dict[str, Any], ...], code: str, tmp_path: Path) -> None:
    engine = Engine(*ends)
    with pytest.raises(Problem) as caught:
        await built(engine, tmp_path)
    assert (caught.value.code, engine.ends, engine.left) == (code, [MADE], set())
