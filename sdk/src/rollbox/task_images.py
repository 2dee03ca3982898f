"""The images of a data set of tasks: which there are to build, and all of them built, some at a time."""

from __future__ import annotations

import asyncio
import json
import time
import tomllib
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rollbox._problem import SandboxError
from rollbox.errors import InvalidArgument
from rollbox.image import BuiltImage

if TYPE_CHECKING:
    from rollbox.build import BuildOptions
    from rollbox.client import Client

# The platform builds a few at a time; beside those, contexts are read and sent.
PARALLEL = 8
MOST_TASKS = 100_000
_KEYS = frozenset({"name", "context", "file", "args", "target", "image"})


@dataclass(frozen=True, slots=True)
class Task:
    """A task of a data set, with what its image is made of.

    Attributes:
        name: unique in the data set.
        context: the folder; None: the image is there already.
        options: of the build.
        image: that, if it is.
    """

    name: str
    context: Path | None
    options: BuildOptions
    image: str = ""


@dataclass(frozen=True, slots=True)
class TaskImage:
    """What became of the image of a task.

    Attributes:
        image: its name with its digest; None: it was not built.
        seconds: how long that took, with the wait for its turn.
        error: why not.
    """

    task: str
    image: BuiltImage | None
    seconds: float
    error: SandboxError | None = None

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON, an error by its code and detail."""
        error = None if self.error is None else {"code": self.error.code, "detail": self.error.detail}
        image = {} if self.image is None else self.image.to_json()
        return {"task": self.task, **image, "seconds": round(self.seconds, 3), "error": error}


def is_data_set(path: Path) -> bool:
    """Return whether a path is a data set, and not the context of one image."""
    return path.suffix == ".toml" or (path.is_dir() and not (path / "Dockerfile").exists() and bool(_folders(path)))


def read(path: Path) -> Sequence[Task]:
    """Read the tasks of a data set.

    Args:
        path: a folder of tasks in Harbor's format (`TASK/environment/Dockerfile`, or `docker_image` in
            `TASK/task.toml`); or a TOML file with a `[[task]]` for each: `name`, and `context` (a folder, from the
            file's own) with `file`, `target` and `args` of the build, or an `image` that is there.

    Raises:
        InvalidArgument: it cannot be read, or says something else.
    """
    found = _listed(path) if path.suffix == ".toml" else [_harbor(one) for one in _folders(path)]
    names = [one.name for one in found]
    if twice := sorted({one for one in names if names.count(one) > 1}) if len(set(names)) < len(names) else []:
        raise InvalidArgument(f"{path} has the task {twice[0]!r} twice")
    if not found:
        raise InvalidArgument(f"{path} has no task")
    return found


def with_options(task: Task, options: BuildOptions) -> Task:
    """Return a task with options for all; its own come first, argument by argument."""
    merged: BuildOptions = {**options, **task.options}
    merged["args"] = {**options.get("args", {}), **task.options.get("args", {})}
    return replace(task, options=merged)


async def built(client: Client, tasks: Iterable[Task], parallel: int) -> AsyncGenerator[TaskImage, None]:
    """Build all, so many at a time; tells each once it is done or has failed. Leaving it ends those under way.

    Args:
        client: of their owner.
        tasks: of a data set.
        parallel: at most at a time.
    """
    waiting, done = iter(tasks), asyncio.Queue[TaskImage | None]()

    async def work() -> None:
        for task in waiting:
            done.put_nowait(await _one(client, task))
        done.put_nowait(None)

    workers = [asyncio.create_task(work(), name="rollbox image build") for _ in range(parallel)]
    try:
        ended = 0
        while ended < parallel:
            if (one := await done.get()) is None:
                ended += 1
            else:
                yield one
    finally:
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)


def manifest(images: Mapping[str, str]) -> str:
    """Return the text of a manifest: task -> image with its digest."""
    return json.dumps({name: str(image) for name, image in sorted(images.items())}, indent=2) + "\n"


def images_of(path: Path) -> Sequence[str]:
    """Read the images that a manifest names.

    Raises:
        InvalidArgument: it cannot be read, or is none.
    """
    try:
        told = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise InvalidArgument(f"the manifest {path} cannot be read: {error}") from error
    if not isinstance(told, dict) or not all(isinstance(one, str) for one in told.values()):
        raise InvalidArgument(f"the manifest {path} is no object of names of images")
    return list(dict.fromkeys(told.values()))


async def _one(client: Client, task: Task) -> TaskImage:
    began = time.monotonic()
    if task.context is None:
        return TaskImage(task.name, BuiltImage(task.image, cached=True), 0.0)
    try:
        return TaskImage(task.name, await client.build(task.context, **task.options), time.monotonic() - began)
    except SandboxError as error:
        return TaskImage(task.name, None, time.monotonic() - began, error)


def _folders(path: Path) -> Sequence[Path]:
    try:
        return sorted(one for one in path.iterdir() if (one / "environment").is_dir() or (one / "task.toml").is_file())
    except OSError as error:
        raise InvalidArgument(f"{path} cannot be read: {error.strerror}") from error


def _harbor(folder: Path) -> Task:
    settings = folder / "task.toml"
    environment = _toml(settings).get("environment", {}) if settings.is_file() else {}
    context = folder / "environment"
    if image := environment.get("docker_image"):
        return Task(folder.name, None, {}, str(image))
    if not (context / "Dockerfile").is_file():
        raise InvalidArgument(f"{folder} has neither environment/Dockerfile nor docker_image in task.toml")
    return Task(folder.name, context, {})


def _listed(path: Path) -> Sequence[Task]:
    told = _toml(path)
    rows = told.pop("task", [])
    if told or not isinstance(rows, list) or not all(isinstance(one, dict) for one in rows):
        raise InvalidArgument(f"{path} has something else than [[task]]: {', '.join(sorted(told)) or 'task'}")
    if len(rows) > MOST_TASKS:
        raise InvalidArgument(f"{path} has more than {MOST_TASKS} tasks")
    return [_row(path, number, row) for number, row in enumerate(rows, 1)]


def _row(path: Path, number: int, row: Mapping[str, Any]) -> Task:
    where = f"{path}, task {number}"
    if unknown := sorted(row.keys() - _KEYS):
        raise InvalidArgument(f"{where} has {unknown[0]!r}; a task has {', '.join(sorted(_KEYS))}")
    name = row.get("name")
    if not isinstance(name, str) or not name:
        raise InvalidArgument(f"{where} has no name")
    if ("image" in row) == ("context" in row):
        raise InvalidArgument(f"{where} has either a context or an image")
    if "image" in row:
        return Task(name, None, {}, str(row["image"]))
    options: BuildOptions = {}
    if "file" in row:
        options["file"] = path.parent / str(row["file"])
    if "target" in row:
        options["target"] = str(row["target"])
    if "args" in row:
        options["args"] = row["args"]
    return Task(name, path.parent / str(row["context"]), options)


def _toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InvalidArgument(f"{path} cannot be read: {error}") from error
