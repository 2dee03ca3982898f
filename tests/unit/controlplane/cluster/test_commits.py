"""Commits on an engine that is played: what becomes of a sandbox where the machine or the engine fails."""

import asyncio
import errno
import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from controlplane.cluster.engine.client import EngineClient
from controlplane.cluster.engine.commit import Commits, layer
from controlplane.cluster.engine.commit import commits as program
from controlplane.errors import Problem

NAME = "localhost/rollbox/commits/alice/repo:v1"


class Engine(EngineClient):
    """Has one sandbox.

    Attributes:
        paused: whether it stands still.
        loaded: how many images were.
    """

    def __init__(self, upper: Path) -> None:
        self._upper = upper
        self.paused = False
        self.loaded = 0

    async def call(self, method: str, path: str, *_: Any) -> Any:
        verb = path.rpartition("/")[2]
        if verb in ("pause", "unpause"):
            await self._pause(verb)
        if path.startswith("images/"):
            return {"Id": "base", "Architecture": "amd64", "Os": "linux", "RootFS": {"Layers": []}, "Config": {}}
        state = {"Running": True, "Paused": self.paused}
        folders = {"UpperDir": str(self._upper), "LowerDir": str(self._upper)}
        return {"Image": "base", "State": state, "GraphDriver": {"Data": folders}}

    async def load(self, _: Any) -> None:
        self.loaded += 1

    async def _pause(self, verb: str) -> None:
        self.paused = verb == "pause"


@pytest.fixture
def engine(tmp_path: Path) -> Engine:
    (tmp_path / "file").write_text("changed")
    return Engine(tmp_path)


async def commit(commits: Commits) -> None:
    await commits.commit("sb-1", NAME, 1 << 20)


async def written(request: bytes, _: int) -> dict[str, Any]:
    """What the program does, in this process: time is virtual here."""
    return layer.written(json.loads(request))


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EMFILE, errno.ENOMEM, errno.EDQUOT, errno.EAGAIN])
@pytest.mark.parametrize("place", [(tempfile, "TemporaryFile"), (asyncio, "create_subprocess_exec")])
async def test_a_machine_that_has_run_out_of_something_has_no_capacity(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, number: int, place: tuple[Any, str]
) -> None:
    def scarce(*_: Any, **__: Any) -> Callable[[], None]:
        raise OSError(number, "there is none")

    commits = Commits(engine)
    with monkeypatch.context() as patch:
        patch.setattr(*place, scarce)
        with pytest.raises(Problem, match="there is none") as caught:
            await commit(commits)
    assert (caught.value.code, engine.paused, engine.loaded) == ("capacity_unavailable", False, 0)
    monkeypatch.setattr(program, "_answer", written)
    await commit(commits)
    assert (engine.paused, engine.loaded) == (False, 1)
