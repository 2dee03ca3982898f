"""Invalid arguments fail before a request is sent, and the error names the argument."""

from base64 import b64decode
from collections.abc import Awaitable, Callable
from pathlib import Path, PurePosixPath
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollbox import Client, Run, Sandbox
from rollbox.errors import InvalidArgument
from rollbox.request import Command, Directory, exec_body, hint_when_not_found
from tests.support.gateway_fake import FakeGateway


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"image": ""}, "image"),
        ({"image": "a b"}, "image"),
        ({"cpu": -1}, "cpu"),
        ({"memory": "lots"}, "memory"),
        ({"memory": ("2Gi", "1Gi")}, "memory"),
        ({"pids": 0}, "pids"),
        ({"disk": "lots"}, "disk"),
        ({"disk": 0}, "disk"),
        ({"gpu": -1}, "gpu"),
        ({"gpu": 1.5}, "gpu"),
        ({"node_selector": {"zone": 1}}, "node_selector"),
        ({"env": {"A=B": "c"}}, "env"),
        ({"env": {"A": "\0"}}, "env"),
        ({"env": {"A": 1}}, "env"),
        ({"labels": {"a=b": "c"}}, "label"),
        ({"labels": {"a": 1}}, "label"),
        ({"cwd": "\0"}, "cwd"),
        ({"ttl": 0}, "ttl"),
        ({"ttl": float("inf")}, "ttl"),
        ({"start_timeout": -3}, "start_timeout"),
        ({"idempotency_key": ""}, "idempotency_key"),
        ({"idempotency_key": "a b"}, "idempotency_key"),
        ({"idempotency_key": "k" * 129}, "idempotency_key"),
    ],
)
async def test_create_refuses(fake: FakeGateway, options: dict[str, Any], named: str) -> None:
    with pytest.raises(InvalidArgument, match=named):
        await Sandbox.create(**{"image": "python", **options})
    assert fake.requests == []


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"cmd": ""}, "empty"),
        ({"cmd": "  "}, "empty"),
        ({"cmd": []}, "empty"),
        ({"cmd": "a\0b"}, "NUL"),
        ({"cmd": ["a", "b\0"]}, "NUL"),
        ({"cmd": ["a", 1]}, "argument"),
        ({"cmd": b"ls"}, "command"),
        ({"cmd": 5}, "command"),
        ({"timeout": 0}, "timeout"),
        ({"timeout": True}, "timeout"),
        ({"stdin": 5}, "stdin"),
        ({"stdin": "\ud800"}, "stdin"),
        ({"max_output_bytes": -1}, "max_output_bytes"),
        ({"exec_id": "é"}, "exec_id"),
        ({"user": "\0"}, "user"),
    ],
)
async def test_exec_refuses(fake: FakeGateway, options: dict[str, Any], named: str) -> None:
    async with await Sandbox.create("python") as sandbox:
        before = len(fake.requests)
        with pytest.raises(InvalidArgument, match=named):
            await sandbox.exec(**{"cmd": "true", **options})
        assert len(fake.requests) == before


def plain(cmd: str | list[str], **given: Any) -> dict[str, Any]:
    nothing = {"cwd": None, "env": None, "user": None, "stdin": b"", "timeout": None, "max_output_bytes": None}
    return exec_body(cmd, "e1", **{**nothing, **given})


def test_a_plain_exec_sends_nothing_that_was_not_given() -> None:
    assert plain(["true"]) == {"exec_id": "e1", "argv": ["true"]}
    assert plain("a | b", stdin="x", timeout=1.5, max_output_bytes=10) == {
        "exec_id": "e1",
        "command": "a | b",
        "stdin": "x",
        "timeout_ms": 1500,
        "max_output_bytes": 10,
    }


@given(st.binary(min_size=1))
async def test_any_bytes_survive_as_stdin_and_stdout(data: bytes) -> None:
    body = plain("cat", stdin=data)
    assert b64decode(body["stdin"]) == data


def _exec(cmd: Command, cwd: Directory | None = None) -> dict[str, Any]:
    return exec_body(cmd, "1", cwd=cwd, env=None, user=None, stdin=b"", timeout=None)


def test_path_objects_are_arguments_and_directories() -> None:
    here = PurePosixPath("/repo")
    assert _exec([here / "run", "-C", here])["argv"] == ["/repo/run", "-C", "/repo"]
    assert _exec(here / "run me")["argv"] == ["/repo/run me"]
    assert _exec("ls", here)["cwd"] == "/repo"
    assert plain("ls", env={"HERE": here, "A": "b"})["env"] == {"HERE": "/repo", "A": "b"}
    assert hint_when_not_found(here) is None
    assert "one list item for each argument" in (hint_when_not_found([here / "ls -l"]) or "")


@pytest.mark.parametrize("path", ["~", "~/x", "~root/x", b"~/x", PurePosixPath("~/x")])
async def test_a_home_in_a_shells_notation_is_refused_on_both_sides(client: Client, path: Any) -> None:
    files = (await client.create("python")).files
    calls: list[Callable[[], Awaitable[object]]] = [
        lambda: files.read(path),
        lambda: files.write(path, b""),
        lambda: files.mkdir(path),
        lambda: files.move("/x", path),
        lambda: files.upload_dir(".", path),
        lambda: files.download(path, "x"),
    ]
    if not isinstance(path, bytes):
        calls += [lambda: files.download("/x", path), lambda: files.download_dir("/x", path)]
        calls += [lambda: files.upload(path, "/x"), lambda: files.upload_dir(path, "/x")]
        with pytest.raises(InvalidArgument, match="only a shell"):
            _exec("ls", path)
        with pytest.raises(InvalidArgument, match="only a shell"):
            Run("r", save_to=path)
    for call in calls:
        with pytest.raises(InvalidArgument, match="only a shell takes for a home") as caught:
            await call()
        assert "./~" in caught.value.hint


async def test_a_file_whose_name_begins_so_has_a_notation(client: Client, fake: FakeGateway, tmp_path: Path) -> None:
    fake.files.root = tmp_path
    files = (await client.create("python")).files
    await files.write("./~x", b"odd")
    assert (tmp_path / "~x").read_bytes() == b"odd"
    assert await files.read("/~x") == b"odd"
