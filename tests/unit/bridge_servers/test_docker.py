"""Docker's bridge against clients that do wrong: half bodies, hostile contexts, ids of nobody, streams that are cut."""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from rollbox import Process, Processes
from rollbox_bridges.docker.container import Container
from tests.support.docker_speaking import Answer, Speaker, context, speaking
from tests.support.gateway_fake import API_KEY, FakeGateway
from tests.support.waiting import until

FAILS = {"Dockerfile": "FROM python:1\nRUN false\n"}
SOUND = {"Dockerfile": "FROM python:1\nCOPY a /\n", "a": "text"}


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where the bridge puts what it unpacks; the path of a socket is short."""
    with tempfile.TemporaryDirectory(prefix="rollbox-") as made:
        monkeypatch.setattr(tempfile, "tempdir", made)
        monkeypatch.setenv("ROLLBOX_API_KEY", API_KEY)
        yield Path(made)


@pytest.fixture
async def docker(fake: FakeGateway, folder: Path) -> AsyncIterator[Speaker]:
    async with speaking(fake, folder / "socket") as speaker:
        yield speaker


def names(folder: Path) -> set[str]:
    """What of builds there is."""
    return {one.name for one in folder.iterdir()} - {"socket"}


async def unpacking(folder: Path) -> bool:
    """Whether there is something of a build."""
    return bool(names(folder))


async def nothing_left(folder: Path) -> None:
    """Wait until nothing is left of builds: it goes behind the answer."""

    async def look() -> bool:
        return not await unpacking(folder)

    await until(look)


async def test_a_build_is_a_stream_with_the_image_at_its_end(docker: Speaker, fake: FakeGateway, folder: Path) -> None:
    told = await docker.call("POST", "/v1.44/build?t=mine:1&t=other", data=context(SOUND))
    identity = told.lines[-4]["aux"]["ID"]
    assert told.lines[-3:] == [
        {"stream": f"Successfully built {identity.removeprefix('sha256:')[:12]}\n"},
        {"stream": "Successfully tagged mine:1\n"},
        {"stream": "Successfully tagged other:latest\n"},
    ]
    await nothing_left(folder)
    # What it begins with is the platform's name of it.
    await docker.call("POST", "/build", data=context({"Dockerfile": "FROM mine:1\n"}))
    (source,) = [line for line in fake.images.builds[-1][0]["dockerfile"].splitlines() if line.startswith("FROM")]
    assert source.removeprefix("FROM ") in fake.images.built.values()
    config = (await docker.call("GET", "/images/mine:1/json")).json
    assert (config["Id"], config["RepoTags"]) == (identity, ["mine:1", "other:latest"])
    assert config["Config"]["Cmd"] == ["serve"]


async def test_a_build_that_fails_says_so_in_its_stream(docker: Speaker, folder: Path) -> None:
    told = await docker.call("POST", "/build", data=context(FAILS))
    assert told.status == 200
    assert told.lines[-1]["error"] == told.lines[-1]["errorDetail"]["message"]
    assert "[build_failed, fault: caller, mask_sample: false]" in told.lines[-1]["error"]
    await nothing_left(folder)


@pytest.mark.parametrize(
    ("data", "status", "says"),
    [
        (b"", 400, "is empty"),
        (b"x" * 2000, 400, "no tar archive"),
        (context(SOUND)[:600], 400, "the build context"),
        (context({"a": "x"}), 400, "Cannot locate specified Dockerfile: Dockerfile"),
        (context({"../Dockerfile": "x"}), 400, "leads out of the build context"),
        (b"\x1f\x8b" + b"x" * 100, 400, "is no gzip"),
        (context({"Dockerfile": "FROM python:1\n" + "#" * 2**22}), 413, "is over the"),
    ],
)
async def test_a_context_that_cannot_be_one_is_refused_before_anything_is_asked(
    docker: Speaker, fake: FakeGateway, folder: Path, *, data: bytes, status: int, says: str
) -> None:
    told = await docker.call("POST", "/build", data=data)
    assert (told.status, says in told.json["message"]) == (status, True), told
    assert fake.images.builds == []
    await nothing_left(folder)


async def test_half_a_context_leaves_nothing(docker: Speaker, fake: FakeGateway, folder: Path) -> None:
    _, writer = await asyncio.open_unix_connection(docker.socket)
    writer.write(b"POST /build HTTP/1.1\r\nHost: docker\r\nContent-Length: 100000\r\n\r\n" + context(SOUND))
    await until(lambda: unpacking(folder))
    writer.transport.abort()
    await nothing_left(folder)
    assert fake.images.builds == []


@pytest.mark.parametrize(
    ("method", "path", "says"),
    [
        ("GET", "/containers/{}/json", "No such container: {}"),
        ("POST", "/containers/{}/start", "No such container: {}"),
        ("DELETE", "/containers/{}", "No such container: {}"),
        ("PUT", "/containers/{}/archive?path=/", "No such container: {}"),
        ("POST", "/exec/{}/start", "No such exec instance: {}"),
        ("GET", "/exec/{}/json", "No such exec instance: {}"),
        ("GET", "/images/sha256:{}/json", "No such image: sha256:{}"),
        ("DELETE", "/images/sha256:{}", "No such image: sha256:{}"),
    ],
)
async def test_an_id_of_nobody_is_told_in_dockers_words(docker: Speaker, method: str, path: str, says: str) -> None:
    other = 64 * "a"
    told = await docker.call(method, path.format(other), {})
    assert (told.status, told.json) == (404, {"message": says.format(other)})


async def test_a_client_that_reads_nothing_holds_nobody_else_up(docker: Speaker) -> None:
    container = await docker.started("sleep", "1000")
    stuck = await docker.exec_of(container, "sh", "-c", "while :; do echo more; done")
    _, writer = await asyncio.open_unix_connection(docker.socket)
    head = f"POST /exec/{stuck}/start HTTP/1.1\r\nHost: docker\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n"
    writer.write(f"{head}Content-Length: 2\r\n\r\n{{}}".encode())
    await until(lambda: docker_runs(docker, stuck))
    assert (await docker.call("GET", "/_ping")).body == b"OK"
    assert (await docker.call("GET", f"/containers/{container}/json")).json["State"]["Running"] is True
    writer.transport.abort()
    # As at Docker the command goes on.
    assert (await docker.call("GET", f"/exec/{stuck}/json")).json["Running"] is True
    assert (await docker.call("DELETE", f"/containers/{container}?force=1")).status == 204


async def docker_runs(docker: Speaker, exec_id: str) -> bool:
    """Whether a command runs."""
    return bool((await docker.call("GET", f"/exec/{exec_id}/json")).json["Running"])


WRITES = "i=0; while [ $i -lt 3000 ]; do printf '%01023d\\n' $i; i=$((i+1)); done"


async def test_what_a_client_asked_for_comes_after_the_container_is_removed(
    docker: Speaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    container = await docker.started("sh", "-c", WRITES)
    assert (await docker.call("POST", f"/containers/{container}/wait")).json["StatusCode"] == 0
    removed: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
    attach, remove, comes, waits = Processes.attach, Container.remove, Container._until, asyncio.Event()
    removals: set[asyncio.Task[Any] | None] = set()

    async def removing(container: Container) -> None:
        removals.add(asyncio.current_task())
        await remove(container)

    async def waiting(*given: Any) -> None:
        if asyncio.current_task() in removals:
            waits.set()
        await comes(*given)

    async def late(*given: Any, **more: Any) -> Process:
        # A removal that does not wait for those that read is over by then.
        held = asyncio.ensure_future(waits.wait())
        either: list[asyncio.Future[Any]] = [removed, held]
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        held.cancel()
        return await attach(*given, **more)

    monkeypatch.setattr(Container, "remove", removing)
    monkeypatch.setattr(Container, "_until", waiting)
    monkeypatch.setattr(Processes, "attach", late)
    # Nor does it wait for a client that does not read what is there.
    monkeypatch.setattr("rollbox_bridges.docker.container._READERS_S", 1000.0)
    kept = f"http://docker/containers/{container}/logs?follow=1&stdout=1"
    async with asyncio.timeout(60), docker.http.get(kept) as logs:
        removed.set_result(await docker.call("DELETE", f"/containers/{container}"))
        body = await logs.read()
    assert (removed.result().status, body[-1024:]) == (204, b"%01023d\n" % 2999)
    assert len(body) > 3000 * 1024


async def test_a_bridge_that_ends_cuts_its_streams_and_leaves_no_container(fake: FakeGateway, folder: Path) -> None:
    async with speaking(fake, folder / "socket") as docker:
        container = await docker.started("sleep", "1000")
        reader, writer = await asyncio.open_unix_connection(docker.socket)
        writer.write(f"GET /containers/{container}/logs?follow=1&stdout=1 HTTP/1.1\r\nHost: docker\r\n\r\n".encode())
        assert b"200 OK" in await reader.readuntil(b"\r\n\r\n")
    await reader.read()
    assert [one["state"] for one in fake.sandboxes.values()] == ["ended"]
    writer.close()
    async with speaking(fake, folder / "socket") as docker:
        told: Any = await docker.call("GET", f"/containers/{container}/json")
        assert (told.status, told.json) == (404, {"message": f"No such container: {container}"})


@pytest.mark.parametrize(
    ("filters", "names"),
    [
        ({}, ["bridge", "none"]),
        ({"name": ["none"]}, ["none"]),
        ({"id": ["bridge", "other"]}, ["bridge"]),
        ({"driver": ["null"]}, ["none"]),
        ({"type": {"custom": True}}, []),
        # Compose asks for those of its project.
        ({"label": ["com.docker.compose.project=a"]}, []),
    ],
)
async def test_networks_are_those_that_pass_the_filters(docker: Speaker, filters: Any, names: list[str]) -> None:
    told = await docker.call("GET", f"/v1.44/networks?filters={json.dumps(filters)}")
    assert [one["Name"] for one in told.json] == names
