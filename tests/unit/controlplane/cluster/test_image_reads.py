"""What an engine is asked about one image, while another is removed."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import aiohttp
import pytest

from controlplane.cluster.engine import client as module
from controlplane.cluster.engine.client import EngineClient, Missing
from controlplane.errors import Problem

# As Podman 4.3.1 says it, of an image and of a part of one.
GONE = (
    'checking if image "ef5c" is dangling: 7bb4: image not known',
    'locating item named "manifest" for image with ID "7bb4"',
)
ONE = "images/sha256:0f8b/json"


class Answer:
    """One answer of the engine: a text is a refusal by 500, a number a status alone."""

    def __init__(self, told: Any) -> None:
        self.status = told if isinstance(told, int) else 500 if isinstance(told, str) else 200
        self._body = {"message": str(told)} if self.status >= 400 else told

    async def read(self) -> bytes:
        return json.dumps(self._body).encode()


class Engine:
    """Gives these answers, one after the other."""

    def __init__(self, *told: Any) -> None:
        self.left = list(told)

    @asynccontextmanager
    async def request(self, method: str, url: Any, **options: Any) -> AsyncIterator[Answer]:
        yield Answer(self.left.pop(0))

    @property
    def client(self) -> EngineClient:
        return EngineClient(cast("aiohttp.ClientSession", self), "unix:///x")


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "READ_AGAIN_S", 0)


@pytest.mark.parametrize("said", GONE)
async def test_a_question_that_meets_an_image_that_goes_is_asked_again(said: str) -> None:
    assert await Engine(said, said, [1]).client.call("GET", ONE) == [1]
    always = Engine(*[said] * module.IMAGE_READS, [1])
    with pytest.raises(Problem, match="7bb4"):
        await always.client.call("GET", ONE)
    assert always.left == [[1]]


@pytest.mark.parametrize("said", ["database is locked", 404])
async def test_another_refusal_is_told_at_once(said: Any) -> None:
    engine = Engine(said, [1])
    with pytest.raises(Missing if said == 404 else Problem):
        await engine.client.call("GET", ONE)
    assert engine.left == [[1]]


@pytest.mark.parametrize(
    ("method", "path"), [("POST", "images/x/tag"), ("DELETE", "images/x"), ("GET", "info"), ("GET", "images/json")]
)
async def test_any_other_call_is_made_once(method: str, path: str) -> None:
    engine = Engine(GONE[0], [1])
    with pytest.raises(Problem):
        await engine.client.call(method, path)
    assert engine.left == [[1]]
