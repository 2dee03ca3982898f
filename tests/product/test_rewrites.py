"""Content for names that have a file already: whose it stays, who may write it, and where none can take its name."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from uuid import uuid4

import pytest

from rollbox import Client, Sandbox
from rollbox.errors import InvalidArgument, PermissionDenied
from tests.support.command_line import rollbox
from tests.support.images import IMAGE
from tests.support.stack import Product

# What a runtime mounts into every sandbox, so that no file can be renamed over it.
MOUNTED = ("/etc/hosts", "/etc/hostname", "/etc/resolv.conf")


@pytest.fixture
async def place(shared: Sandbox) -> str:
    """A directory of this test's own."""
    path = f"/tmp/rewrites-{uuid4().hex[:8]}"
    await shared.files.mkdir(path, mode=0o755)
    return path


async def found(sandbox: Sandbox, path: str) -> str:
    """Owner, mode and content."""
    return (await sandbox.exec(f"stat -c '%u:%g %a' {path}; cat {path}", check=True)).stdout


@pytest.mark.core
async def test_a_file_stays_its_owners_however_it_is_written(shared: Sandbox, place: str, tmp_path: Path) -> None:
    (tmp_path / "tree" / "d").mkdir(parents=True)
    (tmp_path / "tree" / "d").chmod(0o700)
    (tmp_path / "tree" / "f").write_text("new\n")
    (tmp_path / "tree" / "f").chmod(0o755)
    files = shared.files
    ways: list[Callable[[], Awaitable[object]]] = [
        lambda: files.write(f"{place}/f", "new\n"),
        lambda: files.write(f"{place}/f", "new\n", in_place=True),
        lambda: files.upload(tmp_path / "tree" / "f", f"{place}/f"),
        lambda: files.upload_dir(tmp_path / "tree", place),
        lambda: files.upload_dir(tmp_path / "tree", place, in_place=True),
        lambda: files.copy(f"{place}/other", f"{place}/f", replace=True),
    ]
    mark = f'import os; os.setxattr("{place}/f", "user.note", b"kept")'
    await shared.exec(f"echo new > {place}/other; mkdir {place}/d", check=True)
    await shared.exec(f"chown 1000:1000 {place}/d; chmod 1770 {place}/d", check=True)
    for number, way in enumerate(ways):
        await shared.exec(f"echo old old > {place}/f; chown 1000:1001 {place}/f; chmod 640 {place}/f", check=True)
        marked = (await shared.exec(["python3", "-c", mark])).exit_code == 0
        await way()
        assert await found(shared, f"{place}/f") == "1000:1001 640\nnew\n", number
        assert (await shared.exec(f"stat -c '%u:%g %a' {place}/d", check=True)).stdout == "1000:1000 1770\n"
        names = (await shared.exec(["python3", "-c", f'import os; print(os.listxattr("{place}/f"))'])).stdout
        assert names == ("['user.note']\n" if marked else "[]\n"), number
    assert {info.path.removeprefix(f"{place}/") for info in await files.list(place)} == {"f", "d", "other"}
    # What is asked for is what comes.
    assert (await files.write(f"{place}/f", "x", mode=0o600, owner="7:8")).mode == 0o600
    assert await found(shared, f"{place}/f") == "7:8 600\nx"


@pytest.mark.core
async def test_who_may_write_with_a_shell_may_here_and_nobody_else(shared: Sandbox, place: str, tmp_path: Path) -> None:
    (tmp_path / "f").write_text("new\n")
    files, user = shared.files, "1000:1000"
    ways: list[Callable[[], Awaitable[object]]] = [
        lambda: files.write(f"{place}/f", "new\n", user=user),
        lambda: files.upload(tmp_path / "f", f"{place}/f", user=user),
        lambda: files.upload_dir(tmp_path, place, user=user),
        lambda: files.write(f"{place}/f", "new\n", user=user, in_place=True),
        lambda: files.copy("/proc/self/comm", f"{place}/f", user=user, replace=True),
    ]
    for folder, mode, may in (
        ("755", "666", True),
        ("777", "644", False),
        ("1777", "666", True),
        ("755", "644", False),
    ):
        for way in ways[:4] if may else ways:
            await shared.exec(f"echo old old > {place}/f; chmod {mode} {place}/f; chmod {folder} {place}", check=True)
            shell = await shared.exec(f": >> {place}/f", user=user)
            assert (shell.exit_code == 0) is may
            if may:
                await way()
                assert await found(shared, f"{place}/f") == f"0:0 {mode}\nnew\n"
            else:
                with pytest.raises(PermissionDenied):
                    await way()
                assert await found(shared, f"{place}/f") == f"0:0 {mode}\nold old\n"
    assert [info.path for info in await files.list(place)] == [f"{place}/f"]


@pytest.mark.core
async def test_other_names_and_open_readers_see_it_where_it_is_asked_for(shared: Sandbox, place: str) -> None:
    await shared.exec(f"echo old > {place}/f; ln {place}/f {place}/other", check=True)
    async with await shared.spawn(f"exec 3< {place}/f; echo open; read x; cat <&3", stdin=True) as held:
        assert await anext(held.stdout.lines()) == "open"
        await shared.files.write(f"{place}/f", "in place\n", in_place=True)
        assert await shared.files.read_text(f"{place}/other") == "in place\n"
        await held.stdin.write("\n")
        assert await held.stdout.read() == b"in place\n"
    await shared.files.write(f"{place}/f", "replaced\n")
    assert await shared.files.read_text(f"{place}/other") == "in place\n"


@pytest.mark.core
async def test_what_is_mounted_is_written_into(client: Client, tmp_path: Path) -> None:
    first: dict[str, str] = {path: f"# {path}\n" for path in MOUNTED}
    async with await client.create(IMAGE, files={**first, "/repo/a": "a"}, cwd="/repo") as made:
        for path in MOUNTED:
            assert await made.files.read_text(path) == f"# {path}\n"
        assert (await made.exec("pwd; cat a", check=True)).stdout == "/repo\na"
        (tmp_path / "etc").mkdir()
        for name in ("aaa", "hosts", "zzz"):
            (tmp_path / "etc" / name).write_text(f"new {name}, longer than before\n")
        report = await made.files.upload_dir(tmp_path, "/")
        assert (report.count, report.skipped) == (4, {})
        for name in ("aaa", "hosts", "zzz"):
            assert await made.files.read_text(f"/etc/{name}") == f"new {name}, longer than before\n"
        await made.files.upload(tmp_path / "etc" / "zzz", "/etc/resolv.conf")
        await made.files.copy("/repo/a", "/etc/hostname", replace=True)
        assert await made.files.read_text("/etc/hostname") == "a"
        with pytest.raises(PermissionDenied):
            await made.files.write("/etc/hosts", "x", user="nobody")
        assert not [info.path for info in await made.files.list("/etc") if ".rollbox" in info.path]


@pytest.mark.parametrize("user", [None, "nobody"])
async def test_a_directory_that_the_files_of_the_create_make(client: Client, user: str | None) -> None:
    files = {"/tmp/a/b/c/file": "x"}
    async with await client.create(IMAGE, files=files, cwd="/tmp/a/b", user=user) as made:
        told = await made.exec("pwd; id -un; stat -c %U . ..; cat c/file", check=True)
        who = user or "root"
        assert told.stdout == f"/tmp/a/b\n{who}\n{who}\n{who}\nx"
    with pytest.raises(InvalidArgument) as refused:
        await client.create(IMAGE, files=files, cwd="/tmp/a/other", user=user)
    assert refused.value.details["reason"] == "cwd_not_found"


async def test_a_user_who_may_not_make_it_is_told(client: Client) -> None:
    with pytest.raises(PermissionDenied):
        await client.create(IMAGE, files={"/repo/f": "x"}, cwd="/repo", user="nobody")


async def test_the_time_of_a_single_file_goes_both_ways(
    stack: Product, shared: Sandbox, place: str, tmp_path: Path
) -> None:
    (tmp_path / "f").write_text("x")
    os.utime(tmp_path / "f", (1_000_000_000.25, 1_000_000_000.25))
    assert (await rollbox(stack, "cp", str(tmp_path / "f"), f"{shared.id}:{place}/f"))[0] == 0
    assert (await shared.exec(f"stat -c %Y {place}/f", check=True)).stdout == "1000000000\n"
    assert (await rollbox(stack, "cp", f"{shared.id}:{place}/f", str(tmp_path / "back")))[0] == 0
    assert (tmp_path / "back").stat().st_mtime == 1_000_000_000.25


async def test_a_set_user_id_program_that_root_writes_stays_one(shared: Sandbox, place: str) -> None:
    await shared.exec(f"touch {place}/f; chown 1000 {place}/f; chmod 4755 {place}/f", check=True)
    await shared.files.write(f"{place}/f", "x")
    assert await found(shared, f"{place}/f") == "1000:0 4755\nx"
    await shared.files.write(f"{place}/f", "y", user="1000")
    assert await found(shared, f"{place}/f") == "1000:0 755\ny"
