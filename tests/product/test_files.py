"""Files of a sandbox: what goes in comes out, and what cannot work is told by its cause."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
from collections.abc import AsyncIterator
from io import BytesIO
from pathlib import Path
from typing import Any
from urllib.parse import quote
from uuid import uuid4

import aiohttp
import pytest

from controlplane.errors.table import HINT_OF_REASON
from rollbox import Sandbox
from rollbox.errors import Conflict, FileNotFound, InvalidArgument, NoSpace, PermissionDenied
from tests.support.stack import Product
from tests.support.waiting import succeeds, until
from tests.support.wire import token_of

MIB = 2**20


@pytest.fixture
async def place(shared: Sandbox) -> str:
    """A directory of this test's own."""
    path = f"/tmp/files-{uuid4().hex[:8]}"
    await shared.files.mkdir(path)
    return path


@pytest.mark.core
async def test_bytes_come_back_as_they_were(shared: Sandbox, place: str) -> None:
    data = os.urandom(3 * MIB) + b"\r\n\0"
    written = await shared.files.write(f"{place}/a/b/file", data, mode=0o640)
    assert written.sha256 == hashlib.sha256(data).hexdigest()
    assert (written.size_bytes, written.mode, written.kind) == (len(data), 0o640, "file")
    assert await shared.files.read(f"{place}/a/b/file") == data
    assert await shared.files.read(f"{place}/a/b/file", offset=MIB, length=10) == data[MIB : MIB + 10]
    assert await shared.files.read(f"{place}/a/b/file", offset=len(data) + 5) == b""
    assert (await shared.exec(["sha256sum", f"{place}/a/b/file"])).stdout.split()[0] == written.sha256


async def test_streams_of_unknown_length_go_in(shared: Sandbox, place: str, tmp_path: Path) -> None:
    async def parts() -> AsyncIterator[bytes]:
        for n in range(100):
            yield bytes([n]) * 10_000

    assert (await shared.files.write(f"{place}/stream", parts())).size_bytes == 1_000_000
    assert (await shared.files.write(f"{place}/empty", b"")).size_bytes == 0
    assert (await shared.files.write(f"{place}/object", BytesIO(b"from memory"))).size_bytes == 11
    local = tmp_path / "down"
    await shared.files.download(f"{place}/stream", local)
    assert local.read_bytes() == b"".join([part async for part in parts()])
    assert (await shared.files.upload(local, f"{place}/up")).size_bytes == 1_000_000
    assert await succeeds(shared, f"cmp {place}/stream {place}/up")


@pytest.mark.core
async def test_a_file_is_replaced_as_a_whole_and_keeps_its_mode(shared: Sandbox, place: str) -> None:
    await shared.exec(f"echo old > {place}/f; chmod 751 {place}/f; chown 12:13 {place}/f", check=True)
    held = await shared.spawn(f"exec 3< {place}/f; echo open; read x; cat <&3")
    assert await anext(held.stdout.lines()) == "open"
    assert (await shared.files.write(f"{place}/f", "new\n")).mode == 0o751
    await held.stdin.write("\n")
    assert await held.stdout.read() == b"old\n"
    await held.aclose()
    assert await shared.files.read_text(f"{place}/f") == "new\n"
    assert [info.path.rsplit("/", 1)[1] for info in await shared.files.list(place)] == ["f"]


async def test_who_writes_and_whose_it_is(shared: Sandbox, place: str) -> None:
    await shared.exec(["chmod", "777", place], check=True)
    as_nobody = await shared.files.write(f"{place}/n", b"x", user="nobody")
    assert (as_nobody.uid, as_nobody.gid, as_nobody.mode) == (65534, 65534, 0o644)
    given = await shared.files.write(f"{place}/g", b"x", owner="12:34", mode=0o4755)
    assert (given.uid, given.gid, given.mode) == (12, 34, 0o4755)
    with pytest.raises(PermissionDenied):
        await shared.files.write("/etc/nobody-may", b"x", user="nobody")
    with pytest.raises(PermissionDenied):
        await shared.files.read("/etc/shadow", user="nobody")
    with pytest.raises(PermissionDenied):
        await shared.files.write(f"{place}/o", b"x", owner="0", user="nobody")
    assert await shared.files.read("/etc/shadow")


@pytest.mark.core
async def test_a_users_groups_and_its_end_hold_for_the_next_call(sandbox: Sandbox) -> None:
    await sandbox.exec("echo ann:x:4321:4321::/:/bin/sh >> /etc/passwd; mkdir -m 770 /shared; chgrp 4322 /shared")
    assert await sandbox.files.exists("/tmp", user="ann")
    with pytest.raises(PermissionDenied):
        await sandbox.files.write("/shared/file", b"x", user="ann")
    await sandbox.exec("echo more:x:4322:ann >> /etc/group")
    assert (await sandbox.files.write("/shared/file", b"x", user="ann")).size_bytes == 1
    await sandbox.exec("sed -i /^ann:/d /etc/passwd")
    with pytest.raises(InvalidArgument) as refused:
        await sandbox.files.read("/shared/file", user="ann")
    assert refused.value.details["reason"] == "user_not_found"


async def test_what_is_there_is_told(shared: Sandbox, place: str) -> None:
    await shared.exec(
        "mkdir -p d/e; echo hi > d/f; ln -s d/f l; ln -s nowhere dangling; mkfifo p", cwd=place, check=True
    )
    files = shared.files
    kinds = {info.path.removeprefix(f"{place}/"): info.kind for info in await files.list(place)}
    assert kinds == {"d": "directory", "l": "symlink", "dangling": "symlink", "p": "other"}
    everything = await files.list(place, recursive=True)
    assert {info.path.removeprefix(f"{place}/") for info in everything} == {"d", "d/e", "d/f", "l", "dangling", "p"}
    assert not everything.truncated
    short = await files.list(place, recursive=True, limit=3)
    assert (len(short), short.truncated) == (3, True)
    assert (await files.stat(f"{place}/l")).kind == "file"
    link = await files.stat(f"{place}/l", follow=False)
    assert (link.kind, link.link_target) == ("symlink", "d/f")
    assert [await files.exists(f"{place}/{name}") for name in ("d", "dangling", "none")] == [True, False, False]
    assert await files.exists(f"{place}/dangling", follow=False)


@pytest.mark.core
async def test_directories_are_made_moved_copied_and_removed(shared: Sandbox, place: str) -> None:
    files = shared.files
    assert (await files.mkdir(f"{place}/x/y/z", mode=0o700)).mode == 0o700
    assert (await files.mkdir(f"{place}/x/y/z")).kind == "directory"
    with pytest.raises(Conflict):
        await files.mkdir(f"{place}/x", parents=False)
    await files.write(f"{place}/x/one", b"1")
    await files.copy(f"{place}/x/one", f"{place}/x/two")
    await files.move(f"{place}/x/one", f"{place}/x/three")
    with pytest.raises(Conflict) as there:
        await files.move(f"{place}/x/two", f"{place}/x/three")
    assert there.value.details["reason"] == "exists"
    await files.move(f"{place}/x/two", f"{place}/x/three", replace=True)
    assert {info.path.rsplit("/", 1)[1] for info in await files.list(f"{place}/x")} == {"y", "three"}
    with pytest.raises(Conflict) as full:
        await files.remove(f"{place}/x")
    assert full.value.details["reason"] == "not_empty"
    await files.remove(f"{place}/x", recursive=True)
    with pytest.raises(FileNotFound):
        await files.remove(f"{place}/x")
    await files.remove(f"{place}/x", missing_ok=True)


async def test_a_move_to_another_file_system(shared: Sandbox, place: str) -> None:
    await shared.files.write(f"{place}/m", b"moved", mode=0o600)
    target = f"/dev/shm/{uuid4().hex[:8]}"
    assert (await shared.files.move(f"{place}/m", target)).mode == 0o600
    assert await shared.files.read(target) == b"moved"
    await shared.files.remove(target)


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("/tmp", "is_directory"),
        ("/etc/passwd/below", "not_directory"),
        ("/tmp/" + "n" * 300, "name_too_long"),
        ("/" + "n/" * 2100 + "n", "name_too_long"),
        ("/tmp/loop", "symlink_loop"),
        ("/tmp/fifo", "not_regular"),
        ("/dev/zero", "not_regular"),
    ],
)
async def test_paths_that_cannot_be_read_say_why(shared: Sandbox, path: str, reason: str) -> None:
    await shared.exec("ln -sfn loop /tmp/loop; test -p /tmp/fifo || mkfifo /tmp/fifo", check=True)
    with pytest.raises(InvalidArgument) as refused:
        await shared.files.read(path)
    assert refused.value.details["reason"] == reason
    with pytest.raises(InvalidArgument) as refused:
        await shared.files.write(path, b"x")
    assert refused.value.details["reason"] == reason or (path == "/tmp/loop" and reason == "symlink_loop")


async def test_paths_that_are_not_there_or_make_no_sense(shared: Sandbox) -> None:
    with pytest.raises(FileNotFound) as missing:
        await shared.files.read("/no/such/file")
    assert "/no/such/file" in missing.value.detail
    with pytest.raises(FileNotFound):
        await shared.files.write("/tmp/no-such-dir/f", b"x", parents=False)
    for path in ("", "a\0b"):
        with pytest.raises(InvalidArgument):
            await shared.files.read(path)


async def test_names_that_are_no_text(shared: Sandbox, place: str) -> None:
    name = place.encode() + b"/\xff\xfe %&+?#\n'\""
    await shared.files.write(name, b"odd")
    assert await shared.files.read(name) == b"odd"
    (info,) = await shared.files.list(place)
    assert os.fsencode(info.path) == name
    assert await shared.files.read(info.path) == b"odd"
    assert (await shared.exec(f"ls {place} | wc -c")).stdout.strip() == str(len(name) - len(place))


async def test_links_lead_nowhere_but_into_the_sandbox(shared: Sandbox, place: str) -> None:
    """An absolute link, `..` beyond the root, and what lies in /proc: all as a process of the sandbox sees them."""
    await shared.exec(f"ln -s /etc/hostname {place}/host; ln -s ../../../../../../etc/hostname {place}/up", check=True)
    inside = (await shared.exec(["cat", "/etc/hostname"])).stdout_bytes
    for path in (f"{place}/host", f"{place}/up", f"{place}/../../../../../etc/hostname"):
        assert await shared.files.read(path) == inside
    for path in ("/proc/1/environ", "/proc/1/root/etc/hostname", "/proc/1/cwd/x"):
        with pytest.raises((PermissionDenied, FileNotFound, InvalidArgument)):
            await shared.files.read(path)


async def endless() -> AsyncIterator[bytes]:
    """More than any sandbox has room for."""
    for _ in range(4096):
        yield bytes(MIB)


async def test_a_full_disk_in_the_middle_of_an_upload_leaves_the_old_file(sandbox: Sandbox) -> None:
    small = "/dev/shm/small"
    await sandbox.files.write(f"{small}/f", b"old")
    with pytest.raises(NoSpace) as full:
        await sandbox.files.write(f"{small}/f", endless())
    assert not full.value.is_infra
    assert await sandbox.files.read(f"{small}/f") == b"old"
    assert [info.path for info in await sandbox.files.list(small)] == [f"{small}/f"]
    await sandbox.files.write(f"{small}/f", b"new")
    assert await sandbox.files.read(f"{small}/f") == b"new"


@pytest.mark.parametrize(
    ("query", "reason"),
    [("sha256=" + "0" * 64, "digest_mismatch"), ("size=4", "size_mismatch"), ("size=6", "size_mismatch")],
)
async def test_what_arrives_otherwise_than_announced_changes_nothing(
    stack: Product, shared: Sandbox, place: str, query: str, reason: str
) -> None:
    await shared.files.write(f"{place}/f", b"old")
    status, problem = await put(stack, shared, f"{place}/f", query, b"12345")
    assert (status, problem["code"], problem["details"]["reason"]) == (400, "invalid_argument", reason)
    assert await shared.files.read(f"{place}/f") == b"old"
    assert len(await shared.files.list(place)) == 1


async def put(stack: Product, sandbox: Sandbox, path: str, query: str, data: bytes) -> tuple[int, dict[str, Any]]:
    url = f"{stack.url}/v1/sandboxes/{sandbox.id}/file?path={quote(path)}&{query}"
    headers = {"Authorization": f"Bearer {await token_of(stack, sandbox.id)}"}
    async with aiohttp.ClientSession() as http, http.put(url, data=data, headers=headers) as answer:
        return answer.status, json.loads(await answer.read())


async def test_a_client_that_goes_away_in_the_middle_leaves_the_old_file(
    stack: Product, shared: Sandbox, place: str
) -> None:
    await shared.files.write(f"{place}/f", b"old")
    host, port = stack.url.removeprefix("http://").split(":")
    _, writer = await asyncio.open_connection(host, int(port))
    head = (
        f"PUT /v1/sandboxes/{shared.id}/file?path={quote(place)}%2Ff HTTP/1.1\r\nHost: x\r\n"
        f"Authorization: Bearer {await token_of(stack, shared.id)}\r\nContent-Length: 1000000\r\n\r\n"
    )
    writer.write(head.encode() + b"n" * 500_000)
    await writer.drain()
    await until(lambda: succeeds(shared, f"test $(ls -A {place} | wc -l) = 2"))
    writer.transport.abort()
    await until(lambda: succeeds(shared, f"test $(ls -A {place} | wc -l) = 1"))
    assert await shared.files.read(f"{place}/f") == b"old"


async def test_many_writers_of_one_file_leave_one_of_theirs(shared: Sandbox, place: str) -> None:
    written = [bytes([65 + n]) * 200_000 for n in range(16)]
    await asyncio.gather(*(shared.files.write(f"{place}/f", data) for data in written))
    assert await shared.files.read(f"{place}/f") in written
    assert len(await shared.files.list(place)) == 1


async def test_a_file_that_grows_while_it_is_read_is_read_as_it_was_announced(shared: Sandbox, place: str) -> None:
    await shared.exec(f"head -c 20000000 /dev/zero > {place}/grows", check=True)
    async with await shared.spawn(f"while :; do echo more >> {place}/grows; done"):
        assert len(await shared.files.read(f"{place}/grows")) >= 20_000_000


async def test_what_is_mounted_is_named_by_whatever_would_take_it_away(shared: Sandbox) -> None:
    await shared.files.write("/tmp/mine", b"mine")
    for call in (
        shared.files.move("/etc/hosts", "/tmp/taken"),
        shared.files.move("/etc/hosts", "/etc/taken"),
        shared.files.move("/tmp/mine", "/etc/hosts", replace=True),
        shared.files.remove("/etc/hosts"),
    ):
        with pytest.raises(Conflict) as refused:
            await call
        assert refused.value.details == {"path": "/etc/hosts", "reason": "busy"}
        assert refused.value.hint == HINT_OF_REASON["busy"]
    assert await shared.files.read("/tmp/mine") == b"mine"
