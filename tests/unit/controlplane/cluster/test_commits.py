"""Commits on an engine that is played: what becomes of a sandbox where the machine or the engine fails."""

import asyncio
import errno
import json
import tempfile
from collections.abc import AsyncIterable, Callable
from pathlib import Path
from typing import Any

import pytest

from controlplane.cluster.engine.client import EngineClient, Missing
from controlplane.cluster.engine.commit import Commits, layer, room
from controlplane.cluster.engine.commit import commits as program
from controlplane.cluster.engine.commit.commits import GO_ON_AGAIN_S
from controlplane.errors import Problem
from tests.support.virtual_time import VirtualClock

NAME = "localhost/rollbox/commits/alice/repo:v1"


class Engine(EngineClient):
    """Has one sandbox.

    Attributes:
        paused: whether it stands still.
        loaded: how many images were.
        head: what the archive of the last began with.
        refuses: how many further calls to let it go on fail.
        gone: whether it is not there any more.
    """

    def __init__(self, upper: Path) -> None:
        self._upper = upper
        self.paused = False
        self.loaded = 0
        self.head = b""
        self.refuses = 0
        self.gone = False

    async def call(self, method: str, path: str, *_: Any) -> Any:
        if self.gone:
            raise Missing("internal", "no such container")
        verb = path.rpartition("/")[2]
        if verb in ("pause", "unpause"):
            await self._pause(verb)
        if path.startswith("images/"):
            return {"Id": "base", "Architecture": "amd64", "Os": "linux", "RootFS": {"Layers": []}, "Config": {}}
        state = {"Running": True, "Paused": self.paused}
        folders = {"UpperDir": str(self._upper), "LowerDir": str(self._upper)}
        return {"Image": "base", "State": state, "GraphDriver": {"Data": folders}}

    async def load(self, archive: AsyncIterable[bytes]) -> None:
        self.head = await anext(aiter(archive))
        self.loaded += 1

    async def _pause(self, verb: str) -> None:
        if verb == "unpause" and self.refuses:
            self.refuses -= 1
            raise Problem("internal", "the engine is busy")
        if verb == "unpause" and not self.paused:
            raise Problem("internal", "it is not paused")
        self.paused = verb == "pause"


@pytest.fixture
def engine(tmp_path: Path) -> Engine:
    (tmp_path / "file").write_text("changed")
    return Engine(tmp_path)


async def commit(commits: Commits) -> None:
    await commits.commit("sb-1", NAME, 1 << 20)


async def written(request: bytes, _: int) -> dict[str, Any]:
    """What the program does, in this process: time is virtual here."""
    return layer.written(json.loads(request))


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EMFILE, errno.ENOMEM, errno.EDQUOT, errno.EAGAIN])
@pytest.mark.parametrize("place", [(tempfile, "TemporaryFile"), (asyncio, "create_subprocess_exec")])
async def test_a_machine_that_has_run_out_of_something_has_no_capacity(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, number: int, place: tuple[Any, str]
) -> None:
    def scarce(*_: Any, **__: Any) -> Callable[[], None]:
        raise OSError(number, "there is none")

    commits = Commits(engine, "localhost/c", VirtualClock())
    with monkeypatch.context() as patch:
        patch.setattr(*place, scarce)
        with pytest.raises(Problem, match="there is none") as caught:
            await commit(commits)
    assert (caught.value.code, engine.paused, engine.loaded) == ("capacity_unavailable", False, 0)
    monkeypatch.setattr(program, "_answer", written)
    await commit(commits)
    assert (engine.paused, engine.loaded) == (False, 1)


async def test_an_image_is_as_old_as_the_clock_says(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program, "_answer", written)
    await asyncio.sleep(3600)
    await commit(Commits(engine, "localhost/c", VirtualClock()))
    assert b'"created":"2027-01-15T09:00:00Z"' in engine.head.replace(b'": "', b'":"')


async def test_a_sandbox_that_is_not_let_go_on_is_let_so_later(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program, "_answer", written)
    commits, engine.refuses = Commits(engine, "localhost/c", VirtualClock()), 12
    await commit(commits)
    assert engine.paused
    with pytest.raises(Problem) as caught:
        await commit(commits)
    assert caught.value.code == "conflict"
    await asyncio.sleep(sum(GO_ON_AGAIN_S) + 12 * GO_ON_AGAIN_S[-1])
    assert (engine.paused, engine.refuses, len(asyncio.all_tasks())) == (False, 0, 1)
    await commit(commits)


@pytest.mark.parametrize("gone", [True, False])
async def test_nothing_is_tried_again_for_one_that_is_gone_or_when_all_ends(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, gone: bool
) -> None:
    monkeypatch.setattr(program, "_answer", written)
    commits, engine.refuses = Commits(engine, "localhost/c", VirtualClock()), 1 << 20
    await commit(commits)
    assert len(asyncio.all_tasks()) == 2
    if gone:
        engine.gone = True
        await asyncio.sleep(GO_ON_AGAIN_S[0] + 1)
    else:
        await commits.close()
    assert len(asyncio.all_tasks()) == 1


async def test_a_commit_leaves_room_to_sandboxes(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program, "_answer", written)
    # A layer of this sandbox has some KiB; on one disk three copies of it come to be.
    for free, refused in ((room.KEEP_FREE_BYTES, True), (room.KEEP_FREE_BYTES + 300, True), (1 << 40, False)):
        monkeypatch.setattr(room, "free_bytes", lambda _, free=free: free)
        commits = Commits(engine, "localhost/c", VirtualClock())
        if not refused:
            await commit(commits)
            continue
        with pytest.raises(Problem, match=f"{free} bytes free, .* remove images that are not needed") as caught:
            await commit(commits)
        assert (caught.value.code, engine.paused, engine.loaded) == ("capacity_unavailable", False, 0)
    assert engine.loaded == 1


async def test_those_at_once_leave_room_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each would fit alone. Who may write more than the others leave waits for them, and then has what there is."""
    free = room.KEEP_FREE_BYTES + 3 * (4 << 20)
    monkeypatch.setattr(room, "free_bytes", lambda _: free)
    rooms, order = room.Rooms(), list[str]()

    async def write(name: str, max_bytes: int) -> int:
        async with rooms.taken({str(tmp_path): 3}, max_bytes) as found:
            order.append(f"{name} begins")
            await asyncio.sleep(10)
            order.append(f"{name} ends")
            return found.layer_bytes

    found = await asyncio.gather(write("a", 3 << 20), write("b", 1 << 30), write("c", 1 << 20))
    assert order == ["a begins", "c begins", "a ends", "c ends", "b begins", "b ends"]
    assert [*found] == [4 << 20, 4 << 20, 1 << 20]


async def test_one_that_is_cancelled_while_it_waits_for_room_takes_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room, "free_bytes", lambda _: room.KEEP_FREE_BYTES + 1000)
    rooms = room.Rooms()
    async with rooms.taken({str(tmp_path): 1}, 1000):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(5), rooms.taken({str(tmp_path): 1}, 1000):
                pass
    async with rooms.taken({str(tmp_path): 1}, 1000) as found:
        assert found.layer_bytes == 1000
