"""Builds of an engine whose builder fails by itself."""

from __future__ import annotations

import io
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any, cast

import pytest

from controlplane.cluster.engine.build.builds import Builds, Pinned
from controlplane.cluster.protocol.builds import BuildWish, Built
from controlplane.errors import Problem

ID = "f" * 64
GONE = {"error": "checking if cached image exists from a previous build: getting top layer info: layer not known"}
MADE = {"aux": {"ID": f"sha256:{ID}"}}
FAILED = {"error": 'building at STEP "RUN false": exit status 1'}


class Engine:
    """Answers each build with the next of its ends."""

    def __init__(self, *ends: dict[str, Any]) -> None:
        self.ends = list(ends)
        self.left: set[str] = set()

    async def call(self, method: str, path: str, query: Any = None, body: Any = None) -> Any:
        if path == "info":
            return {"DockerRootDir": "/"}
        if path == "containers/create":
            self.left.add(query["name"])
        elif method == "DELETE":
            self.left.discard(path.removeprefix("containers/"))
        return {"Id": ID, "State": {"Pid": os.getpid()}, "RootFS": {}, "Size": 7}

    @asynccontextmanager
    async def lines(self, _: str, path: str, query: Any, archive: Any) -> AsyncIterator[AsyncIterator[dict[str, Any]]]:
        assert (path, [piece async for piece in archive] != []) == ("build", True)

        async def told() -> AsyncIterator[dict[str, Any]]:
            yield {"stream": "STEP 1/1\n"}
            yield self.ends.pop(0)

        yield told()


async def built(engine: Engine) -> list[str | Built]:
    host = SimpleNamespace(installation="i", sidecar_image="s", target_binary="/t", state_dir="/s")
    builds = Builds(cast("Any", engine), cast("Any", None), cast("Any", host), cast("Any", None))
    pinned = Pinned("tag", BuildWish("FROM x", {}, "", "digest"), "FROM x", (), is_closed=False)
    return [said async for said in builds.run(pinned, "localhost/x:1", empty(), {}, max_bytes=100)]


def empty() -> io.BytesIO:
    return io.BytesIO(bytes(1024))


async def test_a_builder_that_lost_a_step_to_another_build_begins_once_more() -> None:
    engine = Engine(GONE, MADE)
    assert await built(engine) == ["STEP 1/1\n", "STEP 1/1\n", Built(f"sha256:{ID}", 7)]
    assert engine.left == set()


@pytest.mark.parametrize(("ends", "code"), [((GONE, GONE, MADE), "internal"), ((FAILED, MADE), "build_failed")])
async def test_other_ends_are_told(ends: tuple[dict[str, Any], ...], code: str) -> None:
    engine = Engine(*ends)
    with pytest.raises(Problem) as caught:
        await built(engine)
    assert (caught.value.code, engine.ends, engine.left) == (code, [MADE], set())
