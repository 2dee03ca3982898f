"""The store with a journal passes the suite of all stores, and its ends outlive it."""

import asyncio
import json
from dataclasses import replace
from pathlib import Path

import pytest

from controlplane.model import EndCause, Limits, Sandbox, SandboxSpec, State, dump_tombstone
from controlplane.store import Admitted, Journal, JournaledStore, Known, Withdrawn
from tests.contract.store_factory import DAY_S, Advance, Lose, Now, sandbox
from tests.contract.store_suite import StoreSuite
from tests.support.refilled import refilled
from tests.support.virtual_time import EPOCH_MS, VirtualClock


def opened(folder: Path, max_bytes: int = 1 << 20) -> JournaledStore:
    return JournaledStore(VirtualClock(), Journal(folder / "ends.jsonl", max_bytes))


def ending(before: Sandbox) -> Sandbox:
    """The record when its end has just begun."""
    end = EndCause("oom_killed", "the kernel killed it", VirtualClock().now_ms(), "engine")
    return replace(before, state=State.ENDING, end=end, version=before.version + 1)


async def buried(store: JournaledStore, sandbox_id: str, key: str | None = None) -> Sandbox:
    """A sandbox that was on record and has begun to end."""
    new = sandbox(sandbox_id, key=key)
    await store.admit(new, Limits())
    assert await store.replace(ending(new), 0)
    return ending(new)


class TestJournaledStore(StoreSuite):
    """See `StoreSuite`."""

    @pytest.fixture
    async def store(self, tmp_path: Path) -> JournaledStore:
        store = opened(tmp_path)
        await refilled(store)
        return store

    @pytest.fixture
    def now_ms(self) -> Now:
        return VirtualClock().now_ms

    @pytest.fixture
    def advance(self) -> Advance:
        return asyncio.sleep

    @pytest.fixture
    def lose(self, store: JournaledStore) -> Lose:
        async def lose() -> None:
            store._intact = False

        return lose


async def test_an_end_and_its_key_outlive_a_restart(tmp_path: Path) -> None:
    before = await buried(opened(tmp_path), "sb-1", "k")
    store = opened(tmp_path)
    kept = replace(before, state=State.ENDED, version=0)
    assert await store.get("sb-1") == kept
    assert await store.admit(sandbox("sb-2", key="k"), Limits()) == Known(kept)
    assert (await store.counts())[State.ENDED] == 1


@pytest.mark.parametrize("by", ["alice", "lease run-1", "operator", "control plane"])
async def test_an_end_from_before_codes_were_split_is_read_and_masks_its_sample(tmp_path: Path, by: str) -> None:
    before = replace(sandbox("sb-1"), state=State.ENDED, end=EndCause("deleted", "as it was told then", EPOCH_MS, by))
    Journal(tmp_path / "ends.jsonl").append({"tombstone": dump_tombstone(before)})
    found = await opened(tmp_path).get("sb-1")
    assert found is not None
    assert found.end is not None
    assert (found.end.cause, found.end.by, found.end.mask_sample) == ("deleted", by, True)


async def test_a_withdrawn_key_outlives_a_restart(tmp_path: Path) -> None:
    store = opened(tmp_path)
    for _ in range(3):
        await store.withdraw("alice", "k")
        await store.withdraw("alice", "of a call", "one")
    assert (tmp_path / "ends.jsonl").read_bytes().count(b"withdrawn") == 2
    assert await opened(tmp_path).admit(sandbox("sb-1", key="k"), Limits()) == Withdrawn()


async def test_what_runs_is_left_to_the_cluster(tmp_path: Path) -> None:
    await opened(tmp_path).admit(sandbox("sb-1", key="k"), Limits())
    assert await opened(tmp_path).get("sb-1") is None


async def test_a_day_counts_from_the_end_and_not_from_the_restart(tmp_path: Path) -> None:
    await buried(opened(tmp_path), "sb-1", "k")
    await opened(tmp_path).withdraw("alice", "w")
    await asyncio.sleep(DAY_S - 60)
    store = opened(tmp_path)
    assert await store.get("sb-1") is not None
    await asyncio.sleep(120)
    assert await store.get("sb-1") is None
    assert isinstance(await store.admit(sandbox("sb-2", key="w"), Limits()), Admitted)
    opened(tmp_path)
    assert (tmp_path / "ends.jsonl").read_bytes() == b""


@pytest.mark.parametrize("cut", [1, 40, 200])
async def test_a_crash_in_the_middle_of_a_line_costs_that_line_only(tmp_path: Path, cut: int) -> None:
    store, path = opened(tmp_path), tmp_path / "ends.jsonl"
    await buried(store, "sb-1")
    await buried(store, "sb-2")
    path.write_bytes(path.read_bytes()[:-cut])
    await buried(store, "sb-3")  # a disk that was full for a moment, then not any more
    again = opened(tmp_path)
    found = {one.id for one in await again.find(None, {})}
    assert found == ({"sb-1", "sb-2", "sb-3"} if cut == 1 else {"sb-1", "sb-3"})


@pytest.mark.parametrize(
    "damaged",
    [
        b"\xff\x00",
        b"[]",
        b"7",
        b"{}",
        b'{"tombstone": 7}',
        b'{"tombstone": {"record": "{}", "end": {}}}',
        b'{"withdrawn": {"owner": 1}}',
        b"[" * 100_000,
    ],
)
async def test_what_cannot_be_read_is_left_out(tmp_path: Path, damaged: bytes) -> None:
    await buried(opened(tmp_path), "sb-1")
    path = tmp_path / "ends.jsonl"
    path.write_bytes(damaged + b"\n" + path.read_bytes())
    assert [one.id for one in await opened(tmp_path).find(None, {})] == ["sb-1"]


async def test_the_file_stays_bounded_and_keeps_the_newest(tmp_path: Path) -> None:
    store, path = opened(tmp_path, 20_000), tmp_path / "ends.jsonl"
    for number in range(200):
        await buried(store, f"sb-{number}")
        assert path.stat().st_size <= 20_000
    found = [one.id for one in await opened(tmp_path, 20_000).find(None, {})]
    assert 10 < len(found) < 100
    assert "sb-199" in found


async def test_the_file_is_private_and_tells_no_environment(tmp_path: Path) -> None:
    store, path = opened(tmp_path), tmp_path / "ends.jsonl"
    new = replace(sandbox("sb-1"), spec=SandboxSpec(image="a", env={"SECRET": "hush"}))
    await store.admit(new, Limits())
    await store.replace(ending(new), 0)
    assert path.stat().st_mode & 0o777 == 0o600
    assert b"hush" not in path.read_bytes()
    assert json.loads(path.read_bytes())["tombstone"]["end"]["cause"] == "oom_killed"


async def test_an_end_that_cannot_be_written_is_an_end(tmp_path: Path) -> None:
    folder = tmp_path / "gone"
    folder.mkdir()
    store = opened(folder)
    for entry in folder.iterdir():
        entry.unlink()
    folder.rmdir()
    before = await buried(store, "sb-1")
    assert await store.get("sb-1") == before
