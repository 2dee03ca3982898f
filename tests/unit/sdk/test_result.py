"""Results of commands: their fields, their wire form, and the errors of `check`."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollbox import ExecResult, SandboxError
from rollbox.errors import ExecCancelled, ExecDeadline, ExecFailed, OomKilled


@pytest.mark.parametrize(
    ("result", "kind", "said"),
    [
        (ExecResult(exit_code=3, stderr_bytes=b"a\nboom\n"), ExecFailed, "exited with code 3; stderr ends with 'boom'"),
        (ExecResult(end="signalled", signal=9), ExecFailed, "SIGKILL"),
        (ExecResult(end="signalled", signal=999), ExecFailed, "signal 999"),
        (ExecResult(end="deadline", run_ms=2000), ExecDeadline, "deadline after 2000 ms"),
        (ExecResult(end="oom_killed"), OomKilled, "oom_killed"),
        (ExecResult(end="cancelled"), ExecCancelled, "cancelled"),
    ],
)
def test_check_raises_by_the_end_and_carries_the_result(
    result: ExecResult, kind: type[SandboxError], said: str
) -> None:
    with pytest.raises(kind, match=said) as caught:
        result.check()
    assert caught.value.result is result
    assert not result.ok


def test_check_passes_a_good_result_on() -> None:
    result = ExecResult(exit_code=0)
    assert result.check() is result
    assert result.ok
    assert not result.timed_out
    assert not result.oom_killed


@given(st.binary())
def test_text_never_fails_and_bytes_are_exact(data: bytes) -> None:
    result = ExecResult(stdout_bytes=data, stderr_bytes=data)
    assert isinstance(result.stdout, str)
    assert result.stderr_bytes == data


@given(st.text())
def test_utf8_text_survives(text: str) -> None:
    result = ExecResult.from_json({"end": "exited", "exit_code": 0, "stdout": text})
    assert result.stdout == text.encode("utf-8", "replace").decode()


def test_binary_output_comes_as_base64() -> None:
    body = {"end": "exited", "stdout": "/wA=", "stdout_encoding": "base64", "stdout_truncated": True}
    result = ExecResult.from_json(body)
    assert result.stdout_bytes == b"\xff\0"
    assert result.stdout == "\ufffd\0"
    assert result.stdout_truncated


def test_a_huge_output_is_not_printed_by_repr() -> None:
    assert len(repr(ExecResult(stdout_bytes=b"x" * 10**6))) < 400


@given(st.binary(), st.binary())
def test_the_wire_form_loses_nothing(stdout: bytes, stderr: bytes) -> None:
    told = ExecResult(stdout_bytes=stdout, stderr_bytes=stderr, stdout_total_bytes=99, exec_id="e", sandbox_id="s")
    body = json.loads(json.dumps(told.to_json()))
    assert ExecResult.from_json(body, "s") == told


def test_the_name_of_the_signal() -> None:
    assert ExecResult(end="signalled", signal=11).signal_name == "SIGSEGV"
    assert ExecResult(exit_code=0).signal_name == ""
