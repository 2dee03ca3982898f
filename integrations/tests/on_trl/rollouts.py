"""Rollouts as TRL's trainers make them: an environment is reset with a row, and its methods are the tools."""

from __future__ import annotations

import contextlib
import inspect
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from rollbox_integrations.trl import RollboxBashEnv, RollboxHarborSpec

IMAGE = os.environ["ROLLBOX_TEST_IMAGE"]
# Where the registry of the others is, so that it is one that answers.
NO_IMAGE = IMAGE.rpartition("/")[0] + "/no-such-image:1"
TASKS = Path(__file__).parents[3] / "sdk/examples/data/harbor"
LABELS = {"rollbox.host": "harbor"}
OPTIONS = {"egress": "offline", "build_args": {"BASE": IMAGE}}


def spec(folder: Path = TASKS, **options: Any) -> RollboxHarborSpec:
    return RollboxHarborSpec(str(folder), **{**OPTIONS, **options})


def tools(env: object) -> dict[str, Callable[..., str]]:
    """What both trainers take for tools."""
    members = inspect.getmembers(type(env), predicate=inspect.isfunction)
    return {
        name: getattr(env, name)
        for name, _ in members
        if name not in ("reset", "get_reward") and not name.startswith("_")
    }


def solution(row: dict[str, Any]) -> str:
    return Path(row["task_dir"], "solution/solve.sh").read_text()


def task(folder: Path, **environment: str) -> Path:
    """A suite of one task that needs no build, with this in the [environment] of its task.toml; returns the suite."""
    (suite := folder / "suite").mkdir()
    shutil.copytree(TASKS / "hello-file", suite / "task")
    file = suite / "task/task.toml"
    given = {"docker_image": IMAGE, "memory": "512M", **environment}
    lines = "".join(f'{name} = "{value}"\n' for name, value in given.items() if value)
    file.write_text(f"{file.read_text().partition('[environment]')[0]}[environment]\n{lines}")
    return suite


@contextlib.contextmanager
def rollout(suite: Path, **options: Any) -> Iterator[RollboxBashEnv]:
    """An environment that was reset with the only task of a suite."""
    made = spec(suite, **options)
    env: Any = made.environment_factory()
    env.reset(**made.train_dataset[0])
    try:
        yield env
    finally:
        env._run(env._stop())


def sandbox_of(env: RollboxBashEnv) -> str:
    env._run(env._ready())
    return str(env._env.sandbox.id)
