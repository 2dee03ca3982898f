"""A run: what it counts, whatever the client, what it labels, and what it prints and saves at its end."""

from __future__ import annotations

import asyncio
import json
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from rollbox import Batch, Client, Run, Sandbox, SandboxError, SandboxGroup, sync
from rollbox.errors import InvalidArgument
from rollbox.recording import current
from rollbox.recording.tails import Tail
from tests.support.gateway_fake import FakeGateway, Fault

KNOWN = {"p50": "p50_ms", "p99": "p99_ms", "max": "max_ms"}


def run_of(fake: FakeGateway) -> set[str | None]:
    return {box["labels"].get("rollbox.run") for box in fake.sandboxes.values()}


async def test_a_run_counts_creates_execs_and_ends_and_labels_what_it_creates(
    client: Client, fake: FakeGateway
) -> None:
    fake.results["bad"] = {"exit_code": 3}
    fake.results["slow"] = {"end": "deadline", "exit_code": None}
    async with Run("r1", show=False, client=client) as run:
        async with await client.create("python", labels={"step": "4"}) as sandbox:
            for command in ("good", "good", "bad", "slow"):
                await sandbox.exec(command)
        with pytest.raises(SandboxError):
            await client.create("missing")
        async with await SandboxGroup.create("python", n=3, client=client):
            pass
    await client.create("python")
    assert fake.sandboxes["sb-1"]["labels"] == {"step": "4", "rollbox.run": "r1"}
    report = await run.report()
    assert (report.creates, report.execs) == ({"cold": 4, "failed": 1}, {"exited": 2, "deadline": 1, "non-zero": 1})
    assert report.masked == {"image_not_found": 1}
    assert [(one["what"], one["code"], one["count"]) for one in report.failures] == [("create", "image_not_found", 1)]
    assert [(one["cause"], one["count"]) for one in report.ends] == [("deleted", 4)]
    assert (report.live, len(report.slowest), report.tails["exec"].count) == (0, 5, 4)
    assert sum(report.spent_s.values()) == pytest.approx(report.wall_s)
    assert [box["labels"].get("rollbox.run") for box in fake.sandboxes.values()][-1] is None


async def test_a_label_of_the_callers_own_stays_and_a_group_of_a_run_is_labelled(
    client: Client, fake: FakeGateway
) -> None:
    async with Run("r2", show=False, client=client):
        await client.create("python", labels={"rollbox.run": "mine"})
        await SandboxGroup.create("python", n=2, client=client)
    assert run_of(fake) == {"mine", "r2"}


async def test_tasks_belong_to_the_run_in_which_they_were_started(client: Client, fake: FakeGateway) -> None:
    async def one(name: str) -> dict[str, float]:
        async with Run(name, show=False, client=client) as run:
            async with asyncio.TaskGroup() as group:
                for _ in range(3 if name == "train" else 1):
                    group.create_task(client.create("python"))
            return run.numbers()

    train, evaluation = await asyncio.gather(one("train"), one("eval"))
    assert (train["creates_cold"], evaluation["creates_cold"]) == (3, 1)
    assert run_of(fake) == {"train", "eval"}


async def test_an_end_that_a_call_meets_and_one_that_the_delete_tells(client: Client, fake: FakeGateway) -> None:
    async with Run("r", show=False, client=client) as run:
        met, told = await client.create("python"), await client.create("python")
        fake.end(met.id, "node_lost")
        fake.end(told.id, "oom_killed")
        with pytest.raises(SandboxError):
            await met.exec("x")
        await met.delete()
        await told.delete()
        await told.delete()
    report = await run.report()
    ends = {one["cause"]: (one["fault"], one["masked"], one["count"]) for one in report.ends}
    assert ends == {"node_lost": ("platform", True, 1), "oom_killed": ("workload", False, 1)}
    assert report.masked == {"node_lost": 1}
    assert report.numbers()["ends_platform"] == report.numbers()["failures_platform"] == 1


async def test_a_cancelled_create_is_neither_a_failure_nor_time_that_goes_on(client: Client, fake: FakeGateway) -> None:
    fake.hold_creates = True
    async with Run("r", show=False, client=client) as run:
        creating = asyncio.create_task(client.create("python"))
        await fake.holding.wait()
        assert run.numbers()["creates_cancelled"] == 0
        creating.cancel()
        await asyncio.gather(creating, return_exceptions=True)
    report = await run.report()
    assert (report.creates, report.failures, report.live) == ({"cancelled": 1}, (), 0)


async def test_a_batch_tells_its_outcomes(client: Client) -> None:
    async def rollout(sample: int) -> None:
        async with await client.create("missing" if sample == 2 else "python"):
            if sample == 3:
                await asyncio.Event().wait()

    async with Run("r", show=False, client=client) as run, Batch(range(4), rollout, in_flight=4) as batch:
        async for _ in batch:
            if len(batch.running) == 1:
                batch.cancel(lambda sample: sample == 3)
    assert (await run.report()).rollouts == {"finished": 2, "cancelled": 1, "image_not_found": 1}


async def test_a_spawned_command_counts_until_its_end(client: Client, fake: FakeGateway) -> None:
    async with Run("r", show=False, client=client) as run:
        sandbox = await client.create("python")
        async with await sandbox.spawn("hold"):
            await asyncio.sleep(0)
        async with await sandbox.spawn(["true"]) as process:
            await process.wait()
        spent = run.numbers()
    assert (await run.report()).execs == {"spawned": 2}
    assert spent["spent_exec_s"] > 0


async def test_the_report_is_printed_and_saved(
    client: Client, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "new" / "r1"
    async with Run("r1", save_to=folder, client=client) as run, await client.create("python"):
        pass
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err == (await run.report()).text() == (folder / "report.txt").read_text()
    assert "run r1:" in printed.err
    saved = json.loads((folder / "report.json").read_text())
    assert saved["creates"] == {"cold": 1}
    assert saved["slowest"][0]["timeline"]["moments"][0]["text"] == "asked for"
    assert "<h1>run r1</h1>" in (folder / "report.html").read_text()


async def test_nothing_is_written_and_no_request_sent_without_need(
    client: Client, fake: FakeGateway, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    async with Run("r1", show=False, client=client):
        pass
    assert (fake.requests, os.listdir(tmp_path)) == ([], [])  # noqa: PTH208 - pathlib blocks no less


async def test_timelines_that_the_platform_does_not_tell_are_named(client: Client, fake: FakeGateway) -> None:
    async with Run("r1", show=False, client=client) as run:
        await client.create("python")
        await client.create("python")
        fake.fail("timeline", Fault(code="permission_denied"))
    report = await run.report()
    assert "permission_denied" in report.missing
    assert [one.timeline is None for one in report.slowest].count(True) == 1
    assert "timelines are missing: permission_denied" in report.text()


async def test_the_programs_own_error_comes_first(client: Client, tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError):
        async with Run("r1", save_to=tmp_path, show=False, client=client):
            raise ZeroDivisionError
    assert (tmp_path / "report.json").exists()
    (tmp_path / "report.json").unlink()
    (tmp_path / "report.json").mkdir()
    async with Run("r1", save_to=tmp_path, show=False, client=client):
        pass  # a run is not failed by what cannot be written at its end


@pytest.mark.parametrize("name", ["", "a\nb", "x" * 257, 5])
def test_a_name_that_no_label_can_hold_is_refused(name: str) -> None:
    with pytest.raises(InvalidArgument):
        Run(name)


def test_a_run_is_not_used_before_it_begins() -> None:
    with pytest.raises(InvalidArgument):
        Run("r").numbers()


def test_the_blocking_run_counts_the_calls_of_all_threads(apart: FakeGateway) -> None:
    def roll(_: int) -> None:
        with sync.Sandbox.create("python") as sandbox:
            sandbox.exec("x")

    with sync.Run("r1", show=False) as run, ThreadPoolExecutor(4) as threads:
        [*threads.map(roll, range(8))]
        assert run.numbers()["creates_cold"] == 8
    assert run_of(apart) == {"r1"}
    assert run.report().execs == {"exited": 8}
    with sync.Sandbox.create("python"):
        pass
    assert run.report().creates == {"cold": 8}


async def test_a_run_keeps_no_more_for_more_calls(client: Client) -> None:
    async with Run("r", show=False, client=client) as run:
        sandbox = await client.create("python")
        recorder = run._begun()
        for _ in range(50):
            with recorder.executing(sandbox.id) as answered:
                answered({"end": "exited", "exit_code": 0})
        kept = len(recorder.durations["exec"]._buckets)
        tail: Tail = (await run.report()).tails["exec"]
    assert tail.count == 50
    assert kept <= 1400
    assert len(recorder._live) == 1


async def test_a_run_adds_no_label_too_many(
    client: Client, fake: FakeGateway, caplog: pytest.LogCaptureFixture
) -> None:
    current._tell_left_out.cache_clear()
    labels = {f"l{number}": "" for number in range(64)}
    async with Run("r1", show=False, client=client):
        for _ in range(2):
            await client.create("python", labels=labels)
        await client.create("python", labels=dict([*labels.items()][1:]))
    full, _, other = (box["labels"] for box in fake.sandboxes.values())
    assert (full, len(other), other["rollbox.run"]) == (labels, 64, "r1")
    assert caplog.text.count("do not get the label rollbox.run") == 1


async def test_without_a_run_nothing_is_labelled(client: Client, fake: FakeGateway) -> None:
    await Sandbox.create("python", client=client)
    assert run_of(fake) == {None}


async def test_each_of_runs_within_runs_counts_what_is_within_it_once(client: Client, fake: FakeGateway) -> None:
    outer, inner, innermost = (Run(name, show=False, client=client) for name in ("outer", "inner", "innermost"))
    async with outer:
        sandbox = await client.create("python")
        async with inner:
            await sandbox.exec("true")
            async with innermost:
                process = await sandbox.spawn("true")
                await process.wait()
                other = await client.create("python")
                with pytest.raises(SandboxError):
                    await client.create("missing")
            await other.delete()
        async with Batch([1, 2], lambda _: asyncio.sleep(0), in_flight=2) as batch:
            assert len([outcome async for outcome in batch]) == 2
        await sandbox.delete()
    assert [box["labels"].get("rollbox.run") for box in fake.sandboxes.values()] == ["outer", "innermost"]
    reports = [await run.report() for run in (outer, inner, innermost)]
    assert [one.creates for one in reports] == [
        {"cold": 2, "failed": 1},
        {"cold": 1, "failed": 1},
        {"cold": 1, "failed": 1},
    ]
    assert [one.execs for one in reports] == [{"exited": 1, "spawned": 1}, {"exited": 1, "spawned": 1}, {"spawned": 1}]
    assert [sum(end["count"] for end in one.ends) for one in reports] == [2, 1, 0]
    assert [one.rollouts for one in reports] == [{"finished": 2}, {}, {}]
    assert [sum(one.spent_s.values()) for one in reports] == pytest.approx([one.wall_s for one in reports])


async def test_what_outlives_an_inner_run_counts_for_the_one_around_it(client: Client) -> None:
    outer, inner = (Run(name, show=False, client=client) for name in ("outer", "inner"))
    over = asyncio.Event()

    async def later(sandbox: Sandbox) -> None:
        await over.wait()
        await sandbox.exec("true")

    async with outer:
        async with inner:
            task = asyncio.create_task(later(await client.create("python")))
        over.set()
        await task
    assert [(await one.report()).execs for one in (outer, inner)] == [{"exited": 1}, {}]


async def test_a_run_begins_once(client: Client) -> None:
    async with Run("r1", show=False, client=client) as run:
        with pytest.raises(InvalidArgument, match="has begun before"):
            run.begin()
        await client.create("python")
    with pytest.raises(InvalidArgument, match="has begun before"):
        run.begin()
    assert (await run.report()).creates == {"cold": 1}
