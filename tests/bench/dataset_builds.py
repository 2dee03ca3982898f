"""A data set of a hundred tasks with Dockerfiles, built by one command; and the same command once more."""

from __future__ import annotations

import json
import shutil
import tempfile
import time
from pathlib import Path
from uuid import uuid4

from rollbox import Client
from rollbox.errors import Conflict
from tests.bench.progress import doing
from tests.bench.record import Record
from tests.support.command_line import rollbox
from tests.support.committing import BUILDS, committing
from tests.support.images import ON_CLUSTER
from tests.support.installed import Installed
from tests.support.stack import Product
from tests.support.waiting import until

TASKS, AT_ONCE = 100, 8
RELEASE = "rollbox-builds"
# As task authors write them: a step that all have in common, files of the task, and a step over these.
DOCKERFILE = """FROM {image}
ENV PYTHONDONTWRITEBYTECODE=1
RUN mkdir -p /app /logs && python3 -c "import json; json.dump(list(range(1000)), open('/app/common.json', 'w'))"
WORKDIR /app
COPY files/ .
RUN python3 prepare.py
"""
PREPARE = """import hashlib, pathlib
for one in sorted(pathlib.Path("data").iterdir()):
    one.with_suffix(".sum").write_text(hashlib.sha256(one.read_bytes()).hexdigest())
"""
WHERE = f"{TASKS} tasks in Harbor's format, ten files and six instructions each, {AT_ONCE} at a time, 2 cores"


async def measure_on_cluster(_: Installed) -> list[Record]:
    """The records of this scenario on a cluster, whose release builds images. Cost: six minutes."""
    upstream = Path(tempfile.mkdtemp(prefix="rb-upstream-"))
    try:
        async with committing(RELEASE, upstream, *BUILDS) as stack:
            return await measure(stack, ON_CLUSTER)
    finally:
        shutil.rmtree(upstream)


async def measure(stack: Product, image: str) -> list[Record]:
    """The records of this scenario. Cost: five minutes.

    Args:
        stack: what builds.
        image: that the tasks are built on.
    """
    folder = Path(tempfile.mkdtemp(prefix="rb-tasks-"))
    manifest = folder / "images.json"
    try:
        for number in range(TASKS):
            _task(folder / "tasks" / f"task-{number:03}", image, number)
        first = await _built(stack, folder / "tasks", manifest, f"{TASKS} built, 0 there already, 0 failed")
        second = await _built(stack, folder / "tasks", manifest, f"0 built, {TASKS} there already, 0 failed")
    finally:
        if manifest.exists():
            await _removed(stack, set(json.loads(manifest.read_text()).values()))
        shutil.rmtree(folder)
    return [
        Record(f"a data set of {TASKS} tasks, built", first, "s", WHERE),
        Record("the same data set once more, of which nothing is built", second, "s", WHERE),
    ]


def _task(folder: Path, image: str, number: int) -> None:
    files = folder / "environment" / "files"
    (files / "data").mkdir(parents=True)
    (folder / "environment" / "Dockerfile").write_text(DOCKERFILE.format(image=image))
    (files / "prepare.py").write_text(PREPARE)
    # No run finds what an earlier one has left.
    (files / "data" / "task").write_text(f"{number} {uuid4().hex}\n")
    for one in range(8):
        (files / "data" / f"{one}.txt").write_text(f"line {one} of task {number}\n" * 100)


async def _built(stack: Product, tasks: Path, manifest: Path, said: str) -> float:
    """Seconds of the command."""
    doing(f"a data set: {said}")
    began = time.perf_counter()
    options = ("--parallel", str(AT_ONCE), "--manifest", str(manifest))
    status, _, err = await rollbox(stack, "image", "build", str(tasks), *options)
    seconds = time.perf_counter() - began
    assert status == 0, err
    assert said in err, err
    return seconds


async def _removed(stack: Product, images: set[str]) -> None:
    async with Client(stack.url, stack.api_key) as client:
        await until(lambda: _gone(client, images))


async def _gone(client: Client, images: set[str]) -> bool:
    for image in list(images):
        try:
            await client.remove_image(image)
        except Conflict:
            continue
        images.discard(image)
    return not images
