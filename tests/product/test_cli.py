"""The command line against the running product."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys

import pytest

from rollbox import Client, Sandbox, SandboxGroup
from tests.support.command_line import answer, rollbox
from tests.support.commits import ON_CLUSTER
from tests.support.images import IMAGE
from tests.support.stack import Product
from tests.support.waiting import succeeds, until

# In the order of a life; `why` tells it in that order.
STATES = ("requested", "queued", "starting", "running", "ending", "ended")


@pytest.mark.core
async def test_a_sandbox_through_the_command_line(stack: Product, client: Client) -> None:
    made = await answer(stack, "create", IMAGE, "--label", "run=cli", "--memory", "256Mi", "--env", "A=1")
    listed = await answer(stack, "ps", "--label", "run=cli")
    assert made["id"] in json.dumps(listed)
    status, out, err = await rollbox(stack, "exec", made["id"], "--", "sh", "-c", "cat; echo $A >&2; exit 5", stdin=b"")
    assert (status, out, err) == (5, b"", "1\n")
    status, out, _ = await rollbox(stack, "exec", made["id"], "--stdin", "-", "--", "cat", stdin=b"\x00\xff piped")
    assert (status, out) == (0, b"\x00\xff piped")
    status, _, _ = await rollbox(stack, "exec", made["id"], "--timeout", "0.5", "--", "sleep", "60")
    assert status == 124
    status, _, err = await rollbox(stack, "exec", made["id"], "--", "no-such-command")
    assert status == 127
    assert "no-such-command" in err
    status, out, _ = await rollbox(stack, "ps")
    assert made["id"].encode() in out
    deleted = await answer(stack, "delete", "--label", "run=cli", "--wait")
    assert made["id"] in json.dumps(deleted)
    status, _, err = await rollbox(stack, "exec", made["id"], "--", "true")
    assert status == 2
    assert "deleted" in err
    status, out, _ = await rollbox(stack, "why", made["id"])
    told = out.decode().splitlines()
    assert (status, told[0]) == (0, f"{made['id']}: ended, {IMAGE}")
    assert told[2].startswith("cause: deleted, by ")
    assert told[3] == "fault: the caller's: its owner, or the program that used it"
    assert told[4] == "sample: mask it: this says nothing about it"
    story = (await answer(stack, "why", made["id"]))["moments"]
    assert [one["state"] for one in story] == sorted((one["state"] for one in story), key=STATES.index)
    assert {"requested", "running", "ended"} <= {one["state"] for one in story}


async def test_a_group_through_the_command_line(stack: Product, client: Client) -> None:
    group = await SandboxGroup.create(IMAGE, n=2, name="cli-group", memory=("64Mi", "128Mi"), client=client)
    gone, left = group[0].id, group[1].id
    await group[0].delete(wait=True)
    (listed,) = [one for one in await answer(stack, "group", "list") if one["name"] == "cli-group"]
    assert listed["states"].get("running") == 1
    shown = await answer(stack, "group", "show", "cli-group")
    assert [(one["sample"], one["sandbox"]["id"]) for one in shown["members"]] == [("0", gone), ("1", left)]
    assert shown["members"][0]["sandbox"]["end"]["cause"] == "deleted"
    assert (await answer(stack, "group", "delete", "cli-group"))["deleted"] == [left]
    status, _, err = await rollbox(stack, "group", "show", "no-such-group")
    assert (status, "there is no group no-such-group" in err) == (2, True)


async def test_ctrl_c_kills_the_command_in_the_sandbox(stack: Product, shared: Sandbox) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "rollbox",
        "exec",
        shared.id,
        "--",
        "sleep",
        "7654",
        env={**os.environ, "ROLLBOX_URL": stack.url, "ROLLBOX_API_KEY": stack.api_key},
        stderr=asyncio.subprocess.PIPE,
    )
    await until(lambda: succeeds(shared, "pgrep -f 'sleep 765[4]'"))
    process.send_signal(signal.SIGINT)
    await process.communicate()
    assert process.returncode == 130
    # The command line waits 2 s for the kill; on a busy machine it may come behind that.
    await until(lambda: succeeds(shared, "! pgrep -f 'sleep 765[4]'"))


@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        (["delete"], 2),
        (["exec", "sb-0000000000000000", "--", "true"], 2),
        *([] if ON_CLUSTER else [(["create", IMAGE.replace("python", "no-such-image")], 2)]),
        (["create", IMAGE, "--memory", "lots"], 2),
    ],
)
async def test_errors_have_the_exit_code_of_their_fault(stack: Product, arguments: list[str], status: int) -> None:
    code, out, err = await rollbox(stack, *arguments)
    assert (code, out) == (status, b"")
    assert err


async def test_doctor_explains_this_machine(stack: Product) -> None:
    status, out, err = await rollbox(stack, "doctor", "--json")
    assert status == 0, err
    checks = json.loads(out)["checks"]
    assert {"name", "ok", "detail", "fix"} <= set(checks[0])
    assert {"engine", "runtime", "cgroups", "gVisor"} <= {check["name"] for check in checks}
    status, out, _ = await rollbox(stack, "doctor")
    assert status == 0
    assert b"engine" in out.lower()
