"""Images that the node does not have, over a line of a told bandwidth: lazily, in a recorded order, whole, in turn."""

from __future__ import annotations

import asyncio
import re
import signal
import statistics
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from rollbox import Client, Sandbox
from tests.bench.cluster.large_images import READ_ALL, SUITE, LargeImage, large_image
from tests.bench.cluster.recorded_order import with_recorded_order
from tests.bench.cluster.slow_registry import SlowRegistry, slow_registry
from tests.bench.progress import doing
from tests.bench.record import Baseline, Record, of_rounds
from tests.cluster import layout, processes, programs
from tests.cluster.toolchain import program
from tests.support.installed import Installed, objects, own_cluster

ROUNDS = 5
HERD = 16
MBIT = 400
COMMON_MIB, ALONE_MIB = (100, 100, 100, 100), 32
FIRST = ["python3", "-c", "print(1)"]

Pull = Literal["lazy", "full"]
# The converted form in which the files come first that the suite was seen to open is pulled lazily too.
Form = Literal["lazy", "ordered", "full"]
FORMS: Sequence[Form] = ("lazy", "ordered", "full")


@dataclass(frozen=True)
class Round:
    """What one image cost that the node had not: seconds since the create, bytes from the registry.

    Attributes:
        second_s, read_s: of the next sandbox, of an image that the node has; 0: there was none.
    """

    first_s: float
    first_bytes: int
    suite_s: float
    suite_bytes: int
    second_s: float = 0.0
    read_s: float = 0.0


async def measure(product: Installed) -> list[Record]:
    """The records of this scenario. Cost: twenty minutes, and as much again where the images are to be made."""
    if not own_cluster():
        raise RuntimeError("it takes the images from the node and its registry: only on the cluster of `make cluster`")
    alone, herd = await asyncio.to_thread(_images)
    async with slow_registry(MBIT) as registry, Client(product.url, product.api_key) as client:
        ordered, files = await with_recorded_order(product, client, alone, SUITE)
        names: dict[Form, str] = {"lazy": alone.lazy, "ordered": ordered, "full": alone.plain}
        rounds = await _rounds(product, client, registry, names)
        herds = await _herds(product, client, herd)
    return [*_of_rounds(rounds, alone), *_of_orders(rounds, alone, files), *_of_herds(herds, herd[0])]


def _images() -> tuple[LargeImage, list[LargeImage]]:
    with tempfile.TemporaryDirectory(prefix="bench-images-", dir=layout.CACHE) as name:
        folder = Path(name)
        alone = large_image("alone", "alone", COMMON_MIB, ALONE_MIB, folder)
        return alone, [large_image(f"herd-{n}", "herd", COMMON_MIB, ALONE_MIB, folder) for n in range(HERD)]


async def _rounds(
    product: Installed, client: Client, registry: SlowRegistry, names: dict[Form, str]
) -> dict[Form, list[Round]]:
    found: dict[Form, list[Round]] = {form: [] for form in FORMS}
    for number in range(ROUNDS):
        first = number % len(FORMS)
        for form in (*FORMS[first:], *FORMS[:first]):
            doing(f"round {number + 1}, {form}")
            await forget(product)
            found[form].append(await _round(client, registry, names[form], form))
    return found


async def _create(client: Client, name: str, pull: Pull) -> Sandbox:
    return await client.create(name, pull=pull, cpu=(0.001, 2), memory=("64Mi", "1Gi"), start_timeout=600)


async def _round(client: Client, registry: SlowRegistry, name: str, form: Form) -> Round:
    pull: Pull = "full" if form == "full" else "lazy"
    before, began_s = registry.sent_bytes(), time.perf_counter()
    async with await _create(client, name, pull) as sandbox:
        await sandbox.exec(FIRST, check=True)
        first_s, first_bytes = time.perf_counter() - began_s, registry.sent_bytes() - before
        await sandbox.exec(SUITE, check=True, timeout=300)
        suite_s, suite_bytes = time.perf_counter() - began_s, registry.sent_bytes() - before
        new = Round(first_s, first_bytes, suite_s, suite_bytes)
        if form == "ordered":
            return new  # once all is fetched there is no order any more
        if form == "lazy":
            await _all_fetched()
        began_s = time.perf_counter()
        async with await _create(client, name, pull) as other:
            await other.exec(FIRST, check=True)
            second_s = time.perf_counter() - began_s
            began_s = time.perf_counter()
            await other.exec(READ_ALL, check=True, timeout=300)
            read_s = time.perf_counter() - began_s
    return replace(new, second_s=second_s, read_s=read_s)


async def _all_fetched(within_s: float = 180.0) -> None:
    """Waits until the node has all of what it has mounted: it goes on when nobody has read for seconds."""
    async with asyncio.timeout(within_s):
        while True:
            sizes = [await asyncio.to_thread(_mounted, of) for of in ("fetched_size", "size")]
            if sizes[0] == sizes[1] > 0:
                return
            await asyncio.sleep(0.5)


def _mounted(of: str) -> float:
    with urllib.request.urlopen("http://127.0.0.1:9811/metrics", timeout=10) as answer:
        found = re.search(rf"^stargz_fs_layer_{of}_bytes (\S+)$", answer.read().decode(), re.MULTILINE)
    return float(found[1]) if found else 0.0


async def _herds(product: Installed, client: Client, herd: Sequence[LargeImage]) -> dict[str, list[float]]:
    """Seconds of each create until its first exec, all of them begun at once."""
    found: dict[str, list[float]] = {}
    pulls: list[Pull] = ["lazy", "full"]
    for pull in pulls:
        doing(f"{len(herd)} images at once, {pull}")
        await forget(product)
        found[pull] = await _at_once(client, herd, pull)
        if pull == "full":
            doing(f"{len(herd)} images at once that are here")
            await _gone(product)
            found["here"] = await _at_once(client, herd, pull)
    await forget(product)
    return found


async def _at_once(client: Client, herd: Sequence[LargeImage], pull: Pull) -> list[float]:
    async def one(image: LargeImage) -> tuple[Sandbox, float]:
        began_s = time.perf_counter()
        sandbox = await _create(client, image.lazy if pull == "lazy" else image.plain, pull)
        await sandbox.exec(FIRST, check=True)
        return sandbox, time.perf_counter() - began_s

    made = await asyncio.gather(*(one(image) for image in herd))
    await asyncio.gather(*(sandbox.delete() for sandbox, _ in made))
    return [seconds for _, seconds in made]


async def forget(product: Installed) -> None:
    """Takes the images of the slow registry from the node, and all that has been fetched of them."""
    await _gone(product)
    await asyncio.to_thread(_forget)


def _forget() -> None:
    ctr = (program("containerd", "ctr"), "--address", str(layout.CONTAINERD_SOCKET), "--namespace", "k8s.io", "images")
    listed = subprocess.run((*ctr, "list"), check=True, capture_output=True, text=True).stdout.splitlines()[1:]
    rows = [line.split() for line in listed]
    digests = {row[2] for row in rows if row[0].startswith(f"{layout.SLOW_REGISTRY}/")}
    if names := [row[0] for row in rows if row[2] in digests]:
        subprocess.run((*ctr, "remove", "--sync", *names), check=True, capture_output=True)
    # What it has fetched outlives the mounts by two minutes, and its caches go when it starts.
    (mounts,) = (one for one in programs.base() if one.name == "lazy-mounts")
    processes.stop(mounts.name, signal.SIGTERM)
    processes.start(mounts)
    processes.wait_ready(mounts)


async def _gone(product: Installed) -> None:
    async with asyncio.timeout(300):
        while await objects("pods", "-n", product.sandboxes):  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.5)


def _compared(
    rounds: dict[Form, list[Round]], form: Form, with_form: Form, what: str, where: str
) -> Callable[[str, str, Callable[[Round], float]], Record]:
    """Makes records of one form against another one of the same run."""

    def record(figure: str, unit: str, of: Callable[[Round], float]) -> Record:
        found, other = (of_rounds([of(one) for one in rounds[one_form]]) for one_form in (form, with_form))
        return Record(figure, found["p50"], unit, where, Baseline(what, other["p50"], other), distribution=found)

    return record


def _where(image: LargeImage) -> str:
    return f"{image.mebibytes:.0f} MiB of compressed layers over {MBIT} Mbit/s, {ROUNDS} rounds in turn, one at a time"


def _of_orders(rounds: dict[Form, list[Round]], image: LargeImage, files: int) -> list[Record]:
    where = f"{_where(image)}; {files} files first, which the suite was seen to open"
    record = _compared(rounds, "ordered", "lazy", "converted without a list", where)
    return [
        record("create to first exec, image new to the node, recorded order", "s", lambda one: one.first_s),
        record("fetched until the first exec has answered, recorded order", "MiB", lambda one: one.first_bytes / 2**20),
        record(
            "create until a test suite has run, image new to the node, recorded order", "s", lambda one: one.suite_s
        ),
        record("fetched until a test suite has run, recorded order", "MiB", lambda one: one.suite_bytes / 2**20),
    ]


def _of_rounds(rounds: dict[Form, list[Round]], image: LargeImage) -> list[Record]:
    record = _compared(rounds, "lazy", "full", "pulled whole", _where(image))
    return [
        record("create to first exec, image new to the node, lazy", "s", lambda one: one.first_s),
        record("fetched until the first exec has answered, lazy", "MiB", lambda one: one.first_bytes / 2**20),
        record("create until a test suite has run, image new to the node, lazy", "s", lambda one: one.suite_s),
        record("create to first exec, image on the node, lazy", "s", lambda one: one.second_s),
        record("reading all files once, image on the node, lazy", "s", lambda one: one.read_s),
    ]


def _of_herds(herds: dict[str, list[float]], image: LargeImage) -> list[Record]:
    common = sum(COMMON_MIB)
    where = (
        f"{HERD} images of {image.mebibytes:.0f} MiB at once over {MBIT} Mbit/s, {common} MiB and a Python in common"
    )
    full, here = (
        Baseline(what, max(herds[name])) for what, name in (("pulled whole", "full"), ("images here", "here"))
    )
    middle = statistics.median
    return [
        Record("16 new images at once: create to first exec, last, lazy", max(herds["lazy"]), "s", where, full),
        Record("16 new images at once: against images on the node, last, lazy", max(herds["lazy"]), "s", where, here),
        Record(
            "16 new images at once: create to first exec, p50, lazy",
            middle(herds["lazy"]),
            "s",
            where,
            Baseline("pulled whole", middle(herds["full"])),
        ),
    ]
