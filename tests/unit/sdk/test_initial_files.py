"""Initial files: written when `create` returns, else the sandbox is deleted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

from rollbox import Client, LazySandbox, RetryPolicy, Sandbox, SandboxGroup, aclose, shared, sync
from rollbox.errors import InvalidArgument, NoSpace, PermissionDenied, StartTimeout, UpstreamTimeout
from tests.support.gateway_fake import FakeGateway, Fault
from tests.unit.sdk.test_cli import rollbox


@pytest.fixture
def root(fake: FakeGateway, tmp_path: Path) -> Path:
    fake.files.root = tmp_path / "root"
    return fake.files.root


def states(fake: FakeGateway) -> list[str]:
    return [box["state"] for box in fake.sandboxes.values()]


@pytest.mark.parametrize(
    ("cwd", "path", "makes"),
    [
        ("/repo", "/repo/src/a", True),
        ("/repo/", "/repo/a", True),
        ("/repo/src/..", "/repo/a", True),
        ("/", "/a", True),
        ("/repo/src", "/repo/a", False),
        ("/repo", "/repository/a", False),
        ("/repo", "/repo", False),
        (PurePosixPath("/repo"), PurePosixPath("/repo/a"), True),
        (None, "/repo/a", False),
    ],
)
async def test_a_directory_that_they_make_is_made_before_it_is_looked_for(
    fake: FakeGateway, root: Path, cwd: Any, path: Any, makes: bool
) -> None:
    async with await Sandbox.create("python", cwd=cwd, files={path: "x"}):
        assert fake.bodies[-1].get("make_cwd", False) is makes
        assert (root / str(path).lstrip("/")).read_text() == "x"


async def test_nothing_of_them_is_told_to_the_control_plane(client: Client, fake: FakeGateway, root: Path) -> None:
    await client.create("python", files={"/a": "secret"})
    assert "files" not in fake.bodies[0]
    assert "secret" not in str(fake.bodies)


async def test_a_repeated_key_writes_them_again(client: Client, fake: FakeGateway, root: Path) -> None:
    for content in ("one", "two"):
        made = await client.create("python", files={"/a": content}, idempotency_key="k")
        assert (made.id, (root / "a").read_text()) == ("sb-1", content)
    assert states(fake) == ["running"]


async def test_one_that_cannot_be_written_leaves_no_sandbox(fake: FakeGateway, root: Path) -> None:
    fake.fail("write", Fault("no_space"))
    with pytest.raises(NoSpace) as failed:
        await Sandbox.create("python", files={f"/{n}": "x" for n in range(50)})
    assert failed.value.sandbox_id == "sb-1"
    assert states(fake) == ["ended"]
    # The failed create has released the shared client, so this release closes it.
    gateway = await shared.acquire()
    await shared.release(gateway)
    assert gateway._transport._closed
    await aclose()


async def test_a_cancelled_create_leaves_no_sandbox(client: Client, fake: FakeGateway, root: Path) -> None:
    fake.files.hold_writes = True
    async with asyncio.TaskGroup() as group:
        creating = group.create_task(client.create("python", files={"/a": "x"}))
        await fake.files.holding.wait()
        creating.cancel()
    assert states(fake) == ["ended"]


@pytest.mark.parametrize("own_key", ["k", None])
async def test_files_that_take_longer_than_the_create_may_leave_no_sandbox(
    fake: FakeGateway, root: Path, own_key: str | None
) -> None:
    fake.files.hold_writes = True
    async with Client() as client:
        with pytest.raises(StartTimeout, match="initial files were not written"):
            await client.create("python", files={"/a": "x"}, start_timeout=0.5, idempotency_key=own_key)
        with pytest.raises(StartTimeout, match="initial files were not written"):
            await SandboxGroup.create("python", n=2, files={"/a": "x"}, start_timeout=0.5, client=client)
    assert set(states(fake)) == {"ended"}


@pytest.fixture
async def once(fake: FakeGateway) -> AsyncIterator[Client]:
    async with Client(retries=RetryPolicy(tries=1)) as made:
        yield made


async def test_a_repetition_that_fails_in_passing_leaves_the_sandbox_that_is_in_use(
    once: Client, fake: FakeGateway, root: Path
) -> None:
    await once.create("python", files={"/a": "x"}, idempotency_key="k")
    await SandboxGroup.create("python", n=2, files={"/a": "x"}, name="g", client=once)
    fake.fail("write", *[Fault("upstream_timeout")] * 3)
    with pytest.raises(UpstreamTimeout):
        await once.create("python", files={"/a": "x"}, idempotency_key="k")
    with pytest.raises(UpstreamTimeout):
        await SandboxGroup.create("python", n=2, files={"/a": "x", "/b": "y"}, name="g", client=once)
    assert states(fake) == ["running"] * 3
    # One sample has its files, the other has failed; its sandbox is kept for the next attempt.
    fake.faults.clear()
    fake.fail("write", Fault("upstream_timeout"))
    part = await SandboxGroup.create("python", n=2, partial=True, files={"/a": "x"}, name="g2", client=once)
    assert len(part.failed) == 1
    assert states(fake) == ["running"] * 5


async def test_a_lazy_one_goes_on_with_the_sandbox_that_a_passing_error_left(
    once: Client, fake: FakeGateway, root: Path
) -> None:
    fake.fail("write", Fault("upstream_timeout"))
    async with LazySandbox("python", files={"/a": "x"}, idempotency_key="k", client=once) as sandbox:
        with pytest.raises(UpstreamTimeout):
            await sandbox.exec("true")
        await sandbox.exec("true")
        assert states(fake) == ["running"]


async def test_a_cancelled_repetition_leaves_the_sandbox_that_is_in_use(
    once: Client, fake: FakeGateway, root: Path
) -> None:
    fake.files.hold_writes = True
    async with asyncio.TaskGroup() as tasks:
        one = tasks.create_task(once.create("python", files={"/a": "x"}, idempotency_key="k"))
        await fake.files.holding.wait()
        one.cancel()
    assert states(fake) == ["running"]


async def test_an_error_that_stays_leaves_no_sandbox_whatever_the_key(
    once: Client, fake: FakeGateway, root: Path
) -> None:
    fake.fail("write", Fault("no_space"), Fault("no_space"))
    with pytest.raises(NoSpace):
        await once.create("python", files={"/a": "x"}, idempotency_key="k")
    with pytest.raises(NoSpace):
        await SandboxGroup.create("python", n=1, files={"/a": "x"}, name="g", client=once)
    assert states(fake) == ["ended"] * 2


BAD: list[tuple[Any, str]] = [
    ({"relative": "x"}, "absolute"),
    ({"/folder/": "x"}, "absolute"),
    ({"": "x"}, "empty"),
    ({"/a\0b": "x"}, "NUL"),
    ({b"/a": "x"}, "absolute"),
    ({7: "x"}, "not a path"),
    ({"/a": 7}, "int"),
    ({"/a": None}, "NoneType"),
    ({"/a": "\udcff"}, "Unicode"),
    ({"/a": Path("/no/such/file")}, "cannot be read"),
    ({"/a": Path("/usr")}, "not a regular file"),
    ([("/a", "x")], "mapping"),
    ({f"/{n}": "" for n in range(1001)}, "1001 files"),
]


@pytest.mark.parametrize(("files", "said"), BAD, ids=lambda value: str(value)[:30])
async def test_nonsense_is_refused_before_anything_is_created(
    client: Client, fake: FakeGateway, files: Any, said: str
) -> None:
    with pytest.raises(InvalidArgument, match=said):
        await client.create("python", files=files)
    with pytest.raises(InvalidArgument, match=said):
        await SandboxGroup.create("python", n=2, files=files, client=client)
    with pytest.raises(InvalidArgument, match=said):
        LazySandbox("python", files=files, client=client)
    with pytest.raises(InvalidArgument, match=said):
        await client.preflight("python", files=files)
    assert fake.requests == []


async def test_a_group_is_whole_or_not_at_all(client: Client, fake: FakeGateway, root: Path) -> None:
    fake.fail("write", Fault("permission_denied"))
    with pytest.raises(PermissionDenied):
        await SandboxGroup.create("python", n=4, files={"/a": "x"}, client=client)
    assert states(fake) == ["ended"] * 4


async def test_a_part_of_a_group_says_why(client: Client, fake: FakeGateway, root: Path) -> None:
    fake.fail("write", Fault("permission_denied"))
    async with await SandboxGroup.create("python", n=3, partial=True, files={"/a": "x"}, client=client) as group:
        assert len(group) == 2
        ((failed, error),) = group.failed.items()
        assert isinstance(error, PermissionDenied)
        assert error.sandbox_id is not None
        assert fake.sandboxes[error.sandbox_id]["labels"]["rollbox.sample"] == str(failed)
        assert sorted(states(fake)) == ["ended", "running", "running"]
    fake.fail("write", Fault("permission_denied"), Fault("permission_denied"))
    with pytest.raises(PermissionDenied):
        await SandboxGroup.create("python", n=2, partial=True, files={"/a": "x"}, client=client)
    assert set(states(fake)) == {"ended"}


async def test_a_lazy_one_has_them_with_its_first_call(client: Client, fake: FakeGateway, root: Path) -> None:
    async with LazySandbox("python", files={"/a": "x"}, client=client) as sandbox:
        assert not (root / "a").exists()
        await sandbox.exec("true")
        assert (root / "a").read_text() == "x"


def test_without_await_and_on_the_command_line(apart: FakeGateway, tmp_path: Path) -> None:
    apart.files.root = tmp_path / "root"
    with sync.Sandbox.create("python", files={"/a": "x"}):
        assert (apart.files.root / "a").read_text() == "x"
    (tmp_path / "local").write_text("typed")
    made = rollbox("create", "python", "--file", f"{tmp_path / 'local'}:/repo/b:c", "--file", f"{tmp_path}/local:/d")
    assert (made.exit_code, made.stderr) == (0, "")
    assert (apart.files.root / "repo" / "b:c").read_text() == "typed"
    assert (apart.files.root / "d").read_text() == "typed"
    before = len(apart.sandboxes)
    for wrong in (f"{tmp_path}/none:/d", "local", ":/d", "local:d"):
        assert rollbox("create", "python", "--file", wrong).exit_code == 2
    twice = rollbox("create", "python", "--file", f"{tmp_path}/local:/d", "--file", f"{tmp_path}/run:/d")
    assert twice.exit_code == 2
    assert "/d" in twice.stderr
    assert len(apart.sandboxes) == before
