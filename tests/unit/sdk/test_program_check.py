"""What a sandbox sees of what programs may do, and what `rollbox doctor` says of that."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from rollbox import Client, program_check
from rollbox.egress_check import Found
from rollbox.program_check import __main__, judged, sandboxed
from tests.support.gateway_fake import FakeGateway, Fault

IMAGE = "python:3.12-slim"
WELL = {"setuid": "0", "attach": 0, "scope": "0", "kernel": "Linux version 6.1", "no_new_privs": False}
GVISOR = "Linux version 4.19.0-gvisor"


def test_a_sandbox_where_programs_may_do_both_is_well() -> None:
    found = [*judged.judged(WELL)]
    assert [(one.name, one.ok, one.fix) for one in found] == [("setuid programs", True, ""), ("debuggers", True, "")]


@pytest.mark.parametrize(
    ("seen", "name", "said", "fix"),
    [
        ({"setuid": "1000", "kernel": GVISOR}, "setuid programs", "change no user", judged.SUID),
        ({"setuid": "1000", "no_new_privs": True}, "setuid programs", "change no user", judged.NO_NEW_PRIVS),
        ({"setuid": "1000"}, "setuid programs", "change no user", judged.UNKNOWN),
        ({"setuid": "exit code 1: no"}, "setuid programs", "not tried: exit code 1: no", judged.UNKNOWN),
        ({"attach": 1, "scope": "1"}, "debuggers", "not permitted; kernel.yama.ptrace_scope is 1", judged.SCOPE),
        ({"attach": 1, "scope": ""}, "debuggers", "Operation not permitted", judged.SCOPE),
        ({"attach": 1, "scope": "1", "kernel": GVISOR}, "debuggers", "ptrace_scope is 1", judged.UPGRADE),
    ],
)
def test_what_they_may_not_is_told_with_what_to_do(seen: dict[str, Any], name: str, said: str, fix: str) -> None:
    (found,) = [one for one in judged.judged({**WELL, **seen}) if not one.ok]
    assert (found.name, found.fix) == (name, fix)
    assert said in found.detail


@pytest.mark.skipif(os.geteuid() != 0, reason="the program changes the user")
async def test_a_sandbox_looks(client: Client, fake: FakeGateway) -> None:
    fake.real_execs = True
    found = await program_check.check(client, IMAGE)
    assert [one.name for one in found] == ["setuid programs", "debuggers"]
    assert not any("not tried" in one.detail for one in found), found
    assert not await client.list()


async def test_an_image_without_python_or_a_start_that_fails_is_told(client: Client, fake: FakeGateway) -> None:
    (found,) = await program_check.check(client, IMAGE)
    assert (found.ok, found.fix) == (False, sandboxed.IMAGE)
    fake.fail("create", Fault("image_not_found"))
    (found,) = await program_check.check(client, IMAGE)
    assert "no sandbox came that far" in found.detail


def test_a_pod_of_the_doctor_writes_what_it_found(
    apart: FakeGateway, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "keys").write_text("tests:rbx_test")
    apart.fail("create", Fault("image_not_found"))
    monkeypatch.setenv("KEYS", str(tmp_path / "keys"))
    monkeypatch.setenv("IMAGE", IMAGE)
    assert __main__.main([str(tmp_path / "out")]) == 0
    (told,) = (Found(**one) for one in json.loads((tmp_path / "out").read_text()))
    assert (told.name, told.ok) == (sandboxed.NAME, False)
