"""What runs in a sandbox, and what an operator declares, through the command line."""

from __future__ import annotations

import json
import uuid

import pytest

from rollbox import Client, Run, Sandbox, SandboxGroup
from tests.support.command_line import answer, rollbox, started
from tests.support.images import IMAGE
from tests.support.replicas import of_each
from tests.support.stack import Product
from tests.support.waiting import until

# Others than the other tests ask for: nobody else claims from the pool.
SIZES = ("--cpu", "0.02:1", "--memory", "64Mi:330Mi")


async def test_a_command_in_the_background_is_listed_attached_to_and_signalled(stack: Product, shared: Sandbox) -> None:
    name = f"background-{uuid.uuid4().hex[:8]}"
    command = "trap 'echo asked; exit 7' TERM; echo said; echo told >&2; while :; do sleep 0.1; done"
    process = await shared.spawn(command, exec_id=name)
    process.detach()
    await process.aclose()
    (listed,) = [one for one in await answer(stack, "processes", shared.id) if one["exec_id"] == name]
    assert (listed["running"], listed["pid"], listed["argv"][-1]) == (True, process.pid, command)
    attached = await started(stack, "attach", shared.id, name)
    assert attached.stdout is not None
    assert attached.stderr is not None
    assert [await attached.stdout.readline(), await attached.stderr.readline()] == [b"said\n", b"told\n"]
    assert await answer(stack, "kill", shared.id, name, "-s", "TERM") == {"exec_id": name, "signal": "TERM"}
    assert await attached.communicate() == (b"asked\n", b"")
    assert attached.returncode == 7
    status, out, err = await rollbox(stack, "attach", shared.id, name, "--offset", "5")
    assert (status, out, err) == (7, b"asked\n", "")
    row = await until(lambda: _row(stack, shared.id, name))
    assert row is not None
    assert "exited 7" in row


async def _row(stack: Product, sandbox_id: str, name: str) -> str | None:
    """The line of a command that has ended."""
    status, out, err = await rollbox(stack, "processes", sandbox_id)
    assert status == 0, err
    return next((line for line in out.decode().splitlines() if line.startswith(name) and "running" not in line), None)


async def test_a_log_has_the_platforms_words_and_the_commands_of_a_sandbox(stack: Product, shared: Sandbox) -> None:
    await shared.exec("echo said; echo told >&2; exit 3", exec_id=(name := f"logged-{uuid.uuid4().hex[:8]}"))
    status, out, err = await rollbox(stack, "logs", shared.id, "--json", "--output", "100")
    assert status == 0, err
    entries = [json.loads(line) for line in out.splitlines()]
    assert [one["at_ms"] for one in entries] == sorted(one["at_ms"] for one in entries)
    (logged,) = [one for one in entries if one.get("exec_id") == name]
    assert (logged["exit_code"], logged["stdout"], logged["stderr"]) == (3, "said\n", "told\n")
    assert entries[0]["by"] == "platform"


async def test_the_report_of_a_run_and_that_of_its_records_agree(
    stack: Product, client: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    name = f"run-{uuid.uuid4().hex[:8]}"
    async with Run(name, client=client) as run:
        async with await client.create(IMAGE) as sandbox:
            await sandbox.exec("sleep 0.2; exit 1")
        async with await SandboxGroup.create(IMAGE, n=2, client=client):
            pass
    report = await run.report()
    assert f"run {name}:" in capsys.readouterr().err
    assert (sum(report.creates.values()), report.execs, report.live) == (3, {"non-zero": 1}, 0)
    assert sum(report.spent_s.values()) == pytest.approx(report.wall_s)
    assert report.spent_s["exec.run"] > 0.15
    assert all(one.timeline is not None for one in report.slowest)
    told = await answer(stack, "why", "--run", name)
    assert (told["creates"], told["ends"][0]["cause"], told["ends"][0]["count"]) == (report.creates, "deleted", 3)
    assert sum(told["spent_s"].values()) == pytest.approx(told["wall_s"])
    assert told["wall_s"] <= report.wall_s + 1


async def test_kill_takes_all_and_what_is_not_there_is_named(stack: Product, shared: Sandbox) -> None:
    name = f"killed-{uuid.uuid4().hex[:8]}"
    process = await shared.spawn("sleep 7301 & sleep 7302", exec_id=name)
    assert (await rollbox(stack, "kill", shared.id, name))[0] == 0
    assert (await process.wait()).end == "cancelled"
    assert (await shared.exec("pgrep -f 'sleep 730[12]'")).exit_code == 1
    status, out, err = await rollbox(stack, "kill", shared.id, "never-was", "--json")
    told = json.loads(err)
    assert (status, out, told["code"], told["sandbox_id"]) == (2, b"", "exec_not_found", shared.id)
    assert "never-was" in told["detail"]


async def test_a_quota_is_declared_shown_kept_and_taken_back(stack: Product, client: Client, shared: Sandbox) -> None:
    owner = (await client.quota()).owner
    try:
        status, out, err = await rollbox(stack, "quota", "set", owner, "--memory", "16Mi", "--sandboxes", "2")
        assert (status, err) == (0, f"{owner} uses more memory_bytes than that: no sandbox ends, no new one starts\n")
        assert all(cell in out.decode() for cell in ("1 of 2  ", "of 0.016Gi  ")), out
        await until(lambda: _limit(stack, 2))
        shown = await answer(stack, "quota")
        assert (shown["limits"]["memory_bytes"], shown["used"]["sandboxes"]) == (16 << 20, 1)
        status, out, err = await rollbox(stack, "create", IMAGE, "--memory", "128Mi:128Mi")
        never = f"this needs 128 MiB of memory, and the quota of {owner} is 16 MiB of memory: waiting does not help; "
        assert (status, out) == (2, b"")
        assert f"{never}an operator raises it with `rollbox quota set {owner} --memory N`" in err
        status, out, err = await rollbox(stack, "preflight", IMAGE, "-n", "3", "--memory", "16Mi:64Mi")
        knobs = [
            f"hint: An operator raises it: rollbox quota set {owner} --{what} N" for what in ("sandboxes", "memory")
        ]
        assert (status, err.splitlines()) == (2, knobs)
        assert out.decode().startswith("3 wanted: 0 may run together now")
    finally:
        taken_back = await answer(stack, "quota", "remove", owner)
    assert taken_back["declared_for"] is None
    await until(lambda: _limit(stack, None))


async def _limit(stack: Product, sandboxes: int | None) -> bool:
    """Whether every replica has heard of the limit."""
    return {one.limits.get("sandboxes") for one in await of_each(stack, Client.quota)} == {sandboxes}


async def test_a_pool_is_declared_listed_drained_and_taken_back(stack: Product, client: Client) -> None:
    name = f"t{uuid.uuid4().hex[:8]}"
    made = await answer(stack, "pool", "set", name, IMAGE, "--warm", "1", *SIZES)
    try:
        assert (made["name"], made["min_warm"], made["max_warm"]) == (name, 1, 1)
        await until(lambda: _filled(client, name, 1))
        row = await until(lambda: _listed(stack, name, ready="1"))
        assert row is not None
        assert row.split()[:7] == [name, IMAGE, "1", "0", "1", "1", "1"]
        assert row.endswith("1 are wanted: minimum and maximum are the same")
        drained = await answer(stack, "pool", "drain", name)
        assert (drained["name"], drained["drain"]) == (name, True)
        await until(lambda: _filled(client, name, 0))
    finally:
        status, out, err = await rollbox(stack, "pool", "delete", name)
    assert (status, out, err) == (0, f"{name}\n".encode(), "")


async def _filled(client: Client, name: str, ready: int) -> bool:
    """Whether the pool says that so many are ready and no others are left."""
    told = await client.pool(name)
    return (told.ready, told.starting, told.outdated) == (ready, 0, 0)


async def _listed(stack: Product, name: str, ready: str) -> str | None:
    """The pool's line, once it says that so many are ready: a replica that does not plan hears of it a second later."""
    status, out, err = await rollbox(stack, "pool", "list")
    assert (status, err) == (0, "")
    row = next(line for line in out.decode().splitlines() if line.startswith(name))
    return row if row.split()[2] == ready else None
