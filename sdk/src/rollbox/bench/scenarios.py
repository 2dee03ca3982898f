"""The scenarios: what each does, what it creates, and how it is measured."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from rollbox.bench import calls
from rollbox.bench.arrivals import Met, closed_loop, numbered
from rollbox.bench.measured import Series
from rollbox.bench.sample import Sample
from rollbox.bench.shapes import SHAPES, Shape
from rollbox.sandbox import Sandbox

if TYPE_CHECKING:
    from rollbox.bench.ground import Ground
    from rollbox.bench.kubectl import Kubectl

_Call: TypeAlias = Callable[[int], Awaitable[object]]

_OUTPUT_BYTES = 200_000_000
_COPY_BYTES = 50_000_000
_ROUNDS = 5
_MEGABYTE = 1_000_000


@dataclass(frozen=True, slots=True)
class Scenario:
    """One scenario.

    Attributes:
        says: what it does.
        sandboxes: how many it has at the same time, at most.
        creates: how many it creates.
        commands: how many it runs, the warm-up included.
        measure: does it.
        compared: with `kubectl exec`, where there is one.
    """

    says: str
    sandboxes: int
    creates: int
    commands: int
    measure: Callable[[Ground], Awaitable[tuple[Series, ...]]]
    compared: bool = False


def scenarios(most: int) -> dict[str, Scenario]:
    """Return all scenarios by name, in the order in which they are run.

    Args:
        most: sandboxes at the same time; the shapes of creates are cut to that.
    """
    shapes = {name: shape.cut(most) for name, shape in SHAPES.items()}
    found = {f"create-{name}": _of_shape(shape) for name, shape in shapes.items()}
    for at_once, total in calls.EXECS.items():
        # One at a time is in one sandbox: each lane has its own.
        boxes = min(calls.SANDBOXES, most, at_once)
        says = f"exec of true, {at_once} at once in {boxes} sandbox{'es' if boxes > 1 else ''}"
        commands = total + _warm_up(at_once, total)
        found[f"exec-{at_once}"] = Scenario(says, boxes, boxes, commands, partial(_execs, at_once, total, boxes), True)
    widths = ", ".join(map(str, calls.CROWD))
    found["exec-crowd"] = Scenario(
        f"exec of true, {widths} at once in one sandbox", 1, 1, sum(calls.CROWD.values()), _crowd
    )
    found["keystrokes"] = Scenario("keys to a terminal, each until its echo", 1, 1, 1, _keystrokes)
    output = f"output of a command, {_OUTPUT_BYTES // _MEGABYTE} MB, read to its end"
    found["output"] = Scenario(output, 1, 1, _ROUNDS, _output)
    found["files"] = Scenario(f"a file of {_COPY_BYTES // _MEGABYTE} MB up and down", 1, 1, 0, _files)
    return found


def _of_shape(shape: Shape) -> Scenario:
    return Scenario(f"creates, {shape.says}", shape.count, shape.count, 0, partial(_creates, shape))


async def _creates(shape: Shape, ground: Ground) -> tuple[Series, ...]:
    await ground.refilled()
    ground.told.begin(f"creates, {shape.says}", shape.count)

    async def call(_: int) -> object:
        return await ground.create()

    try:
        # A sequential one that has begun may end.
        times, later_s = (1, shape.times_s[-1]) if shape.times_s else (2, 0.0)
        met = await shape.play(ground.bounded(call, times=times, later_s=later_s), for_s=ground.seconds)
    finally:
        await ground.clear()
    how = "from when each was due" if shape.times_s else "each when the one before was ready"
    by_kind: dict[str, list[Met]] = {}
    for one in met:
        if isinstance(one.answer, Sandbox):
            by_kind.setdefault(one.answer.record.source or "cold", []).append(one)
    kinds = [kind for kind, those in by_kind.items() for _ in those]
    found = [Series("create", Sample.of(met, kinds), f"until a command can run, {how}", shape.count)]
    if len(by_kind) > 1:
        found += [Series(f"create, {kind}", Sample.of(those), part=True) for kind, those in sorted(by_kind.items())]
    return tuple(found)


async def _execs(at_once: int, total: int, boxes: int, ground: Ground) -> tuple[Series, ...]:
    async with ground.sandboxes(boxes) as made:
        warm_up = _warm_up(at_once, total)
        ground.told.begin(f"execs, {at_once} at once, to warm up", warm_up)
        await closed_loop(at_once, warm_up, ground.bounded(calls.execs(made)), for_s=ground.seconds / 10)
        found = [await _loop("exec", at_once, total, calls.execs(made), ground)]
        if ground.kubectl is not None:
            # Where the pods are is asked before it is measured: that is a program of its own for each.
            for one in made:
                await ground.kubectl.why_not(one.id)
            baseline = _by_kubectl(ground.kubectl, [one.id for one in made])
            found.append(await _loop("kubectl exec", at_once, calls.BASELINE_EXECS[at_once], baseline, ground))
    return tuple(found)


def _warm_up(at_once: int, total: int) -> int:
    """How many commands come before those that are measured."""
    return max(at_once, total // 10)


def _by_kubectl(kubectl: Kubectl, ids: list[str]) -> _Call:
    async def call(lane: int) -> object:
        return await kubectl.true(ids[lane % len(ids)])

    return call


async def _crowd(ground: Ground) -> tuple[Series, ...]:
    async with ground.sandboxes(1) as made:
        call = calls.execs(made)
        found = [
            await _loop(f"exec, {at_once} at once", at_once, total, call, ground)
            for at_once, total in calls.CROWD.items()
        ]
    return tuple(found)


async def _keystrokes(ground: Ground) -> tuple[Series, ...]:
    async with ground.sandboxes(1) as (sandbox,), calls.keys(sandbox) as key:
        return (await _loop("keystroke", 1, calls.KEYSTROKES, numbered(key), ground),)


async def _output(ground: Ground) -> tuple[Series, ...]:
    async with ground.sandboxes(1) as (sandbox,):
        call = calls.streamed(sandbox, calls.zeros(_OUTPUT_BYTES), _OUTPUT_BYTES)
        return (await _loop("output", 1, _ROUNDS, call, ground, size=_OUTPUT_BYTES),)


async def _files(ground: Ground) -> tuple[Series, ...]:
    async with ground.sandboxes(1) as (sandbox,), calls.copies(sandbox, _COPY_BYTES) as ways:
        names = ("upload", "download")
        found = [
            await _loop(name, 1, _ROUNDS, way, ground, size=_COPY_BYTES) for name, way in zip(names, ways, strict=True)
        ]
    return tuple(found)


async def _loop(name: str, at_once: int, total: int, call: _Call, ground: Ground, *, size: int = 0) -> Series:
    """Make the calls in a closed loop, within the time of a scenario; what has begun then may end."""
    ground.told.begin(f"{name}, {at_once} at once" if "at once" not in name else name, total)
    met = await closed_loop(at_once, total, ground.bounded(call, times=2), for_s=ground.seconds)
    note = f"closed loop, {at_once} at once" + (f", {size // _MEGABYTE} MB each" if size else "")
    return Series(name, Sample.of(met), note, total, size / _MEGABYTE)
