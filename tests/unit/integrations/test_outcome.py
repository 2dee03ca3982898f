"""What hosts read of an end and of a failure, and whether a host is one that an adapter works with."""

from __future__ import annotations

from importlib import metadata
from typing import Any

import pytest

from rollbox import ExecResult, SandboxError
from rollbox.errors import BY_CODE, ExecCancelled, InvalidArgument, OomKilled, QuotaExceeded
from rollbox_integrations import outcome, versions
from rollbox_integrations.outcome import Outcome


@pytest.mark.parametrize(
    ("end", "expected"),
    [
        ({"end": "exited", "exit_code": 3}, Outcome(3, b"o", b"e")),
        ({"end": "exited", "exit_code": 0}, Outcome(0, b"o", b"e")),
        ({"end": "signalled", "signal": 15}, Outcome(143, b"o", b"e")),
        ({"end": "deadline", "signal": 9}, Outcome(124, b"o", b"e\nrollbox: it passed its timeout and was killed\n")),
        (
            {"end": "oom_killed", "signal": 9},
            Outcome(137, b"o", b"e\nrollbox: it passed the memory limit of its sandbox and was killed\n"),
        ),
    ],
)
def test_an_end_has_a_status_and_what_no_status_says_is_in_stderr(end: Any, expected: Outcome) -> None:
    assert outcome.ended(ExecResult(stdout_bytes=b"o", stderr_bytes=b"e", **end)) == expected


def test_a_command_that_somebody_cancelled_says_nothing_about_the_sample() -> None:
    with pytest.raises(ExecCancelled):
        outcome.ended(ExecResult(end="cancelled"))


@pytest.mark.parametrize(
    ("reason", "status", "words"),
    [
        ("command_not_found", 127, "command not found"),
        ("not_executable", 126, "permission denied"),
        ("cwd_not_found", 126, "no such working directory"),
        ("user_not_found", 126, "no such user"),
        ("arguments_too_large", 126, "argument list too long"),
    ],
)
def test_a_command_that_is_not_started_has_a_shells_status(reason: str, status: int, words: str) -> None:
    error = InvalidArgument("it is x", details={"reason": reason})
    assert outcome.refused(error) == Outcome(status, stderr=f"rollbox: {words}: it is x\n".encode())


def test_other_errors_are_no_refusal_and_no_death() -> None:
    assert outcome.refused(InvalidArgument("env")) is None
    refusing = {code for code, kind in BY_CODE.items() if outcome.refused(kind("x")) is not None}
    deadly = {code for code, kind in BY_CODE.items() if outcome.died(kind("x")) is not None}
    assert (refusing, deadly) == (set(), {"oom_killed", "disk_full"})


def test_a_fault_is_written_down_whole() -> None:
    error = QuotaExceeded("no room", hint="Wait.", sandbox_id="sb-1")
    assert outcome.fault(error) == {
        "code": "quota_exceeded",
        "fault": "caller",
        "mask_sample": True,
        "retry": "later",
        "why": "no room. Wait.",
        "sandbox_id": "sb-1",
    }
    assert outcome.sentence(error) == "quota_exceeded (caller; mask the sample): no room. Wait."
    scored: SandboxError = OomKilled("it died", hint="")
    assert outcome.sentence(scored) == "oom_killed (workload; score the sample): it died."


@pytest.mark.parametrize(
    ("found", "oldest", "enough"),
    [
        ("0.3.285", "0.3.285", True),
        ("0.3.284", "0.3.285", False),
        ("0.10.0", "0.9.7", True),
        ("0.4.1.dev86", "0.4.1.dev86", True),
        ("0.4.1.dev85", "0.4.1.dev86", False),
        ("0.4.1", "0.4.1.dev86", True),
        ("0.4.0", "0.4.1.dev86", False),
        ("1.0rc1", "1.0", False),
        ("2.0+local.9", "2.0", True),
    ],
)
def test_a_host_is_new_enough_or_refused_by_its_version(
    monkeypatch: pytest.MonkeyPatch, found: str, oldest: str, *, enough: bool
) -> None:
    monkeypatch.setattr(metadata, "version", lambda _: found)
    if enough:
        versions.require("a-host", oldest, "host")
    else:
        with pytest.raises(ImportError, match=r"a-host .* is here; rollbox works with .*\[host\]"):
            versions.require("a-host", oldest, "host")


def test_a_host_that_is_not_there_is_told_with_what_installs_it() -> None:
    with pytest.raises(ImportError, match=r'no-such-host is not installed: pip install "rollbox-integrations\[host\]"'):
        versions.require("no-such-host", "1", "host")
