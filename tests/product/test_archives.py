"""Directories up and down as one stream: what is in them arrives, and nothing arrives elsewhere."""

from __future__ import annotations

import asyncio
import io
import json
import os
import sys
import tarfile
from collections.abc import Iterable
from pathlib import Path
from urllib.parse import quote
from uuid import uuid4

import aiohttp
import pytest

from rollbox import Sandbox
from rollbox.errors import FileNotFound
from tests.support.stack import Product
from tests.support.wire import token_of


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A directory with all that an archive keeps."""
    root = tmp_path / "tree"
    (root / "empty").mkdir(parents=True)
    (root / "deep" / ("d" * 120) / ("e" * 120)).mkdir(parents=True)
    (root / "deep" / ("d" * 120) / ("e" * 120) / ("f" * 120)).write_bytes(b"long name")
    (root / "run").write_bytes(b"#!/bin/sh\n")
    (root / "run").chmod(0o751)
    (root / "empty").chmod(0o700)
    (root / "link").symlink_to("run")
    (root / "dangling").symlink_to("/no/such/place")
    (root / "big").write_bytes(os.urandom(2_000_000))
    (root / "ümläut").write_bytes(b"")
    os.utime(root / "run", (1_000_000_000, 1_000_000_000))
    return root


def shape(root: Path) -> dict[str, tuple[object, ...]]:
    """Path -> kind, mode, content, of everything below."""
    found: dict[str, tuple[object, ...]] = {}
    for path in sorted(root.rglob("*")):
        if path.is_symlink():
            found[str(path.relative_to(root))] = ("link", str(path.readlink()))
        else:
            mode = path.stat().st_mode & 0o7777
            found[str(path.relative_to(root))] = (mode, path.read_bytes() if path.is_file() else "directory")
    return found


@pytest.mark.core
async def test_a_directory_goes_up_and_comes_down_as_it_was(shared: Sandbox, tree: Path, tmp_path: Path) -> None:
    remote = f"/tmp/up-{uuid4().hex[:8]}"
    report = await shared.files.upload_dir(tree, remote)
    assert report.count >= len(shape(tree)) - report.skipped_count
    seen = await shared.exec("stat -c '%a %Y' run; readlink link; stat -c %a empty; cat deep/*/*/*", cwd=remote)
    assert seen.stdout == "751 1000000000\nrun\n700\nlong name"
    await shared.files.download_dir(remote, tmp_path / "down")
    skipped = {"dangling"} - set(shape(tmp_path / "down"))
    assert shape(tmp_path / "down") == {name: it for name, it in shape(tree).items() if name not in skipped}


async def test_what_no_archive_brings_is_reported(shared: Sandbox, tmp_path: Path) -> None:
    place = f"/tmp/odd-{uuid4().hex[:8]}"
    await shared.exec(f"mkdir {place}; cd {place}; echo x > f; mkfifo p", check=True)
    await shared.files.download_dir(place, tmp_path / "odd")
    assert sorted(path.name for path in (tmp_path / "odd").iterdir()) == ["f"]
    with pytest.raises(FileNotFound):
        await shared.files.download_dir("/no/such/directory", tmp_path / "none")


def archive(entries: Iterable[tuple[tarfile.TarInfo, bytes]]) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w", format=tarfile.GNU_FORMAT) as tar:
        for info, data in entries:
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return made.getvalue()


def entry(name: str, kind: bytes = tarfile.REGTYPE, target: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.mode = kind, target, 0o755
    return info


async def unpack(stack: Product, sandbox: Sandbox, place: str, data: bytes) -> tuple[int, dict[str, object]]:
    url = f"{stack.url}/v1/sandboxes/{sandbox.id}/archive?path={quote(place)}&parents=true"
    headers = {"Authorization": f"Bearer {await token_of(stack, sandbox.id)}"}
    async with aiohttp.ClientSession() as http, http.put(url, data=data, headers=headers) as answer:
        return answer.status, json.loads(await answer.read())


@pytest.mark.parametrize(
    "entries",
    [
        [(entry("../outside"), b"x")],
        [(entry("/tmp/outside"), b"x")],
        [(entry("a/../../outside"), b"x")],
        [(entry("out", tarfile.SYMTYPE, "/tmp"), b""), (entry("out/outside"), b"x")],
        [(entry("out", tarfile.SYMTYPE, ".."), b""), (entry("out/outside"), b"x")],
        [(entry("hard", tarfile.LNKTYPE, "/etc/passwd"), b"")],
        [(entry("hard", tarfile.LNKTYPE, "../../etc/passwd"), b"")],
        [(entry("null", tarfile.CHRTYPE), b"")],
    ],
)
async def test_nothing_is_written_outside(
    stack: Product, shared: Sandbox, entries: list[tuple[tarfile.TarInfo, bytes]]
) -> None:
    place = f"/tmp/box-{uuid4().hex[:8]}/inner"
    status, _ = await unpack(stack, shared, place, archive(entries))
    assert status in {200, 400, 409}
    seen = await shared.exec(f"ls /tmp/outside /outside {place}/../outside; find {place} -type c -o -links +1 -type f")
    assert seen.stdout == ""


async def test_an_archive_that_is_cut_or_no_archive_is_refused(stack: Product, shared: Sandbox) -> None:
    whole = archive([(entry("f"), b"x" * 5_000)])
    for data in (whole[:2_000], b"no tar" * 500, b""):
        status, problem = await unpack(stack, shared, f"/tmp/cut-{uuid4().hex[:8]}", data)
        if data:
            assert (status, problem["code"]) == (400, "invalid_argument")


async def test_cp_on_the_command_line(stack: Product, shared: Sandbox, tree: Path, tmp_path: Path) -> None:
    remote = f"/tmp/cp-{uuid4().hex[:8]}"

    async def rollbox(*arguments: str) -> tuple[int, str]:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "rollbox",
            *arguments,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={**os.environ, "ROLLBOX_URL": stack.url, "ROLLBOX_API_KEY": stack.api_key},
        )
        out, err = await process.communicate()
        return process.returncode or 0, out.decode() or err.decode()

    assert (await rollbox("cp", "-r", str(tree), f"{shared.id}:{remote}"))[0] == 0
    status, listed = await rollbox("ls", f"{shared.id}:{remote}", "--json")
    assert status == 0
    assert {Path(one["path"]).name for one in json.loads(listed)["entries"]} >= {"run", "empty", "link", "deep"}
    assert (await rollbox("cp", f"{shared.id}:{remote}/big", str(tmp_path / "big")))[0] == 0
    assert (tmp_path / "big").read_bytes() == (tree / "big").read_bytes()
    assert (await rollbox("cp", f"{shared.id}:/no/such", str(tmp_path)))[0] == 2
    assert (await rollbox("cp", str(tree), f"{shared.id}:/tmp/x"))[0] == 2
