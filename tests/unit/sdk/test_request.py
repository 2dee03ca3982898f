"""Invalid arguments fail before a request is sent, and the error names the argument."""

from base64 import b64decode
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollbox import Sandbox
from rollbox.errors import InvalidArgument
from rollbox.request import exec_body
from tests.support.gateway_fake import FakeGateway


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"image": ""}, "image"),
        ({"image": "a b"}, "image"),
        ({"cpu": -1}, "cpu"),
        ({"memory": "lots"}, "memory"),
        ({"memory": ("2Gi", "1Gi")}, "memory"),
        ({"pids": 0}, "pids"),
        ({"disk": "lots"}, "disk"),
        ({"disk": 0}, "disk"),
        ({"gpu": -1}, "gpu"),
        ({"gpu": 1.5}, "gpu"),
        ({"node_selector": {"zone": 1}}, "node_selector"),
        ({"env": {"A=B": "c"}}, "env"),
        ({"env": {"A": "\0"}}, "env"),
        ({"env": {"A": 1}}, "env"),
        ({"labels": {"a=b": "c"}}, "label"),
        ({"labels": {"a": 1}}, "label"),
        ({"cwd": "\0"}, "cwd"),
        ({"ttl": 0}, "ttl"),
        ({"ttl": float("inf")}, "ttl"),
        ({"start_timeout": -3}, "start_timeout"),
        ({"idempotency_key": ""}, "idempotency_key"),
        ({"idempotency_key": "a b"}, "idempotency_key"),
        ({"idempotency_key": "k" * 129}, "idempotency_key"),
    ],
)
async def test_create_refuses(fake: FakeGateway, options: dict[str, Any], named: str) -> None:
    with pytest.raises(InvalidArgument, match=named):
        await Sandbox.create(**{"image": "python", **options})
    assert fake.requests == []


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"cmd": ""}, "empty"),
        ({"cmd": "  "}, "empty"),
        ({"cmd": []}, "empty"),
        ({"cmd": "a\0b"}, "NUL"),
        ({"cmd": ["a", "b\0"]}, "NUL"),
        ({"cmd": ["a", 1]}, "argument"),
        ({"cmd": b"ls"}, "command"),
        ({"cmd": 5}, "command"),
        ({"timeout": 0}, "timeout"),
        ({"timeout": True}, "timeout"),
        ({"stdin": 5}, "stdin"),
        ({"stdin": "\ud800"}, "stdin"),
        ({"max_output_bytes": -1}, "max_output_bytes"),
        ({"exec_id": "é"}, "exec_id"),
        ({"user": "\0"}, "user"),
    ],
)
async def test_exec_refuses(fake: FakeGateway, options: dict[str, Any], named: str) -> None:
    async with await Sandbox.create("python") as sandbox:
        before = len(fake.requests)
        with pytest.raises(InvalidArgument, match=named):
            await sandbox.exec(**{"cmd": "true", **options})
        assert len(fake.requests) == before


def plain(cmd: str | list[str], **given: Any) -> dict[str, Any]:
    nothing = {"cwd": None, "env": None, "user": None, "stdin": b"", "timeout": None, "max_output_bytes": None}
    return exec_body(cmd, "e1", **{**nothing, **given})


def test_a_plain_exec_sends_nothing_that_was_not_given() -> None:
    assert plain(["true"]) == {"exec_id": "e1", "argv": ["true"]}
    assert plain("a | b", stdin="x", timeout=1.5, max_output_bytes=10) == {
        "exec_id": "e1",
        "command": "a | b",
        "stdin": "x",
        "timeout_ms": 1500,
        "max_output_bytes": 10,
    }


@given(st.binary(min_size=1))
async def test_any_bytes_survive_as_stdin_and_stdout(data: bytes) -> None:
    body = plain("cat", stdin=data)
    assert b64decode(body["stdin"]) == data
