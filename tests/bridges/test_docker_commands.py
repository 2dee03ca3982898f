"""`rollbox-docker` over the bridge, and what a client may do wrong."""

from __future__ import annotations

import asyncio
import io
import os
import stat
import sys
from collections.abc import Mapping
from pathlib import Path

import aiohttp
import pytest

from rollbox import Client
from tests.bridges.running import docker
from tests.support.eventually import LIMIT_S
from tests.support.images import IMAGE
from tests.support.stack import Product

SHIM = (sys.executable, "-m", "rollbox_bridges.docker.shim")


def mode_of(path: Path) -> int | None:
    """The mode of a file; None: there is none."""
    return stat.S_IMODE(path.stat().st_mode) if path.exists() else None


async def shim(environ: Mapping[str, str], *words: str, stdin: bytes = b"") -> tuple[int, str, str]:
    """Call a command; its exit code and its outputs."""
    pipe = asyncio.subprocess.PIPE
    paths = {**environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    process = await asyncio.create_subprocess_exec(*SHIM, *words, env=paths, stdin=pipe, stdout=pipe, stderr=pipe)
    out, err = await process.communicate(stdin)
    assert process.returncode is not None
    return process.returncode, out.decode(), err.decode()


async def test_commands_do_what_dockers_do(stack: Product, tmp_path: Path) -> None:
    (tmp_path / "up/sub").mkdir(parents=True)
    (tmp_path / "up/sub/file").write_text("text")
    async with docker(stack) as environ:
        run = ("run", "--rm", "--network", "none")
        told = await shim(
            environ, *run, "-w", "/srv", "-e", "A=1 2", IMAGE, "sh", "-c", "pwd; echo $A; echo e >&2; exit 7"
        )
        assert told == (7, "/srv\n1 2\n", "e\n")
        assert await shim(environ, *run, "-i", IMAGE, "cat", stdin=b"input\n") == (0, "input\n", "")
        code, made, _ = await shim(environ, "run", "-d", "--name", "named", IMAGE, "sleep", "1000")
        assert (code, len(made.strip())) == (0, 64)
        assert (await shim(environ, "exec", "named", "sh", "-c", "echo o; echo e >&2; exit 9")) == (9, "o\n", "e\n")
        assert (await shim(environ, "exec", "-i", "-u", "root", "named", "wc", "-c", stdin=b"1234"))[1].strip() == "4"
        code, out, _ = await shim(environ, "exec", "named", "nosuch")
        assert (code, "executable file not found in $PATH" in out) == (127, True)
        assert await shim(environ, "cp", f"{tmp_path}/up", "named:/opt") == (0, "", "")
        assert await shim(environ, "cp", "named:/opt/up/sub", f"{tmp_path}/down") == (0, "", "")
        assert (tmp_path / "down/file").read_text() == "text"
        assert (await shim(environ, "cp", "named:/nowhere", "-"))[0] == 1
        assert await shim(environ, "inspect", "-f", "{{.State.Status}} {{.Name}}", "named") == (
            0,
            "running /named\n",
            "",
        )
        assert (await shim(environ, "ps", "-q", "--no-trunc"))[1] == made
        assert (await shim(environ, "images", "-q", IMAGE))[1]
        assert (await shim(environ, "pull", "-q", IMAGE)) == (0, f"{IMAGE}\n", "")
        assert await shim(environ, "stop", "-t", "5", "named") == (0, "named\n", "")
        assert await shim(environ, "rm", "-f", "named") == (0, "named\n", "")
        code, _, err = await shim(environ, "exec", "named", "true")
        assert (code, err) == (1, "Error response from daemon: No such container: named\n")
        code, _, err = await shim(environ, "run", "-v", "/etc:/x", IMAGE, "true")
        assert (code, "HostConfig.Binds ['/etc:/x'] is not supported" in err) == (125, True)
        assert (await shim(environ, "run", "--rm", IMAGE, "nosuch"))[0] == 127
        assert (await shim(environ, "ps", "-aq"))[1] == ""


async def test_without_a_bridge_a_command_says_what_to_start(tmp_path: Path) -> None:
    environ = {"DOCKER_HOST": f"unix://{tmp_path}/none.sock"}
    code, _, err = await shim(environ, "ps")
    assert (code, "Is `rollbox bridge docker` running" in err) == (1, True)


async def test_the_socket_is_its_users_alone_and_containers_end_with_the_bridge(stack: Product, client: Client) -> None:
    async with docker(stack) as environ:
        path = Path(environ["DOCKER_HOST"].removeprefix("unix://"))
        assert mode_of(path) == 0o600
        await shim(environ, "run", "-d", "--name", "left", IMAGE, "sleep", "1000")
        assert len(await client.list({"docker/name": "left"})) == 1
    # The end is on record; the engine removes the sandbox behind it.
    assert [one.state for one in await client.list({"docker/name": "left"})] in ([], ["ending"])
    assert mode_of(path) is None


@pytest.fixture
def body() -> dict[str, object]:
    """Of a create that is sound."""
    return {"Image": IMAGE, "Cmd": ["sleep", "1000"], "HostConfig": {"NetworkMode": "none"}}


async def test_what_would_be_ignored_is_refused_by_name(
    stack: Product, client: Client, body: dict[str, object]
) -> None:
    async with docker(stack) as environ, unix(environ) as http:
        for path, sent, status, words in (
            ("/v1.44/containers/create", {**body, "Future": 1}, 400, "Future 1 is not supported"),
            ("/v1.44/containers/create", {**body, "HostConfig": {"Odd": [1]}}, 400, "HostConfig.Odd [1]"),
            ("/v1.44/containers/create?odd=1", body, 400, "odd=1 is not supported"),
            ("/v1.44/containers/create", [], 400, "is not a JSON object"),
            ("/v1.99/containers/create", body, 400, "client version 1.99 is too new"),
            ("/v1.10/containers/create", body, 400, "client version 1.10 is too old"),
            ("/v1.44/nothing", {}, 404, "page not found"),
            ("/v1.44/build?nocache=1", {}, 400, "nocache=1 is not supported"),
            ("/v1.44/build?version=2", {}, 400, "BuildKit is not spoken"),
        ):
            async with http.post(f"http://docker{path}", json=sent) as answer:
                assert (answer.status, words in (await answer.json())["message"]) == (status, True), path
                assert answer.headers["Content-Type"] == "application/json"
        for data, status in ((b"{", 400), (b" " * 2**23, 413)):
            async with http.post("http://docker/containers/create", data=io.BytesIO(data)) as answer:
                assert answer.status == status
        assert await client.list({}) == []


async def test_a_future_field_that_asks_for_nothing_is_taken(stack: Product, body: dict[str, object]) -> None:
    async with (
        docker(stack) as environ,
        unix(environ) as http,
        http.post("http://docker/containers/create", json={**body, "Future": None, "HOSTCONFIG": {}}) as answer,
    ):
        assert answer.status == 201


async def test_half_an_archive_ends_its_tar(stack: Product, body: dict[str, object]) -> None:
    async with docker(stack) as environ, unix(environ) as http:
        async with http.post("http://docker/containers/create?name=half", json=body) as answer:
            assert answer.status == 201
        async with http.post("http://docker/containers/half/start") as answer:
            assert answer.status == 204
        _, writer = await asyncio.open_unix_connection(environ["DOCKER_HOST"].removeprefix("unix://"))
        head = "PUT /containers/half/archive?path=/tmp HTTP/1.1\r\nHost: docker\r\nContent-Length: 100000\r\n\r\n"
        writer.write(head.encode() + b"\0" * 1000)
        await writer.drain()

        async def until(number: int) -> None:
            look = ("exec", "half", "sh", "-c", "cat /proc/[0-9]*/comm")
            async with asyncio.timeout(LIMIT_S):
                while (await shim(environ, *look))[1].split().count("tar") != number:
                    pass

        await until(1)
        writer.transport.abort()
        await until(0)


def unix(environ: Mapping[str, str]) -> aiohttp.ClientSession:
    """A client of HTTP over the socket."""
    return aiohttp.ClientSession(connector=aiohttp.UnixConnector(environ["DOCKER_HOST"].removeprefix("unix://")))
