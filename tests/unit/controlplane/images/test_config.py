"""What an image says of the processes that run from it, as registries and engines write it."""

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as some

from controlplane.errors import Problem
from controlplane.images import ImageConfig

ANY_JSON = some.recursive(
    some.none() | some.booleans() | some.integers() | some.text(max_size=5),
    lambda inner: some.lists(inner, max_size=3) | some.dictionaries(some.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


def test_what_is_not_said_is_empty() -> None:
    assert ImageConfig.parsed("i", "d", b"{}") == ImageConfig("d")
    assert ImageConfig.read("i", "d", {}, {"Cmd": None, "Labels": None}) == ImageConfig("d")


def test_all_that_is_said_is_told() -> None:
    config = {
        "Entrypoint": ["a"],
        "Cmd": ["b"],
        "Env": ["A=1"],
        "WorkingDir": "/w",
        "User": "u",
        "StopSignal": "SIGINT",
    }
    more = {"Labels": {"l": "1"}, "ExposedPorts": {"80/tcp": {}}}
    body = json.dumps({"architecture": "amd64", "created": "2026", "config": {**config, **more}}).encode()
    assert ImageConfig.parsed("i", "d", body) == ImageConfig(
        "d", "amd64", "2026", ("a",), ("b",), ("A=1",), "/w", "u", "SIGINT", {"l": "1"}, ("80/tcp",)
    )


@pytest.mark.parametrize(
    "body", [b"{", b"[]", b'{"config": []}', b'{"config": {"Cmd": "x"}}', b'{"config": {"Env": [1]}}']
)
def test_what_is_malformed_is_refused(body: bytes) -> None:
    with pytest.raises(Problem, match="malformed") as refused:
        ImageConfig.parsed("i", "d", body)
    assert refused.value.code == "unsupported"


@given(ANY_JSON)
def test_anything_is_read_or_refused(said: object) -> None:
    for body in (json.dumps(said), json.dumps({"config": said})):
        with contextlib.suppress(Problem):
            ImageConfig.parsed("i", "d", body.encode())
