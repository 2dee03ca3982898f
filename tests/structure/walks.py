"""The way of a cold create and of a readiness push through a running control plane, in a checkout.

    PYTHONPATH=CHECKOUT python tests/structure/walks.py

It stands alone, so that it can run on a checkout from before it: it needs only ``tests.support.world`` there. Each line
is a call from one module into another one. `^` marks a call into a module that is on the way here already: back up.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

ROOMS = ("api", "lifecycle", "store", "cluster")
FOLDER = f"{Path.cwd()}/controlplane/"


@dataclass
class Call:
    """A function and what it called, in order of the first call of each."""

    module: str
    name: str
    inside: dict[tuple[str, str], Call] = field(default_factory=dict)


class Walk:
    """Records calls while it is on; ``roots`` are those that the event loop, or what is not the control plane, made."""

    def __init__(self) -> None:
        self.roots: dict[tuple[str, str], Call] = {}
        self._calls: dict[FrameType, Call] = {}

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        # A coroutine is called again whenever it goes on.
        if event != "call" or frame in self._calls or not code.co_filename.startswith(FOLDER) or code.co_name[0] == "<":
            return
        module = code.co_filename.removeprefix(FOLDER).removesuffix(".py")
        around, back = None, frame.f_back
        while back is not None and (around := self._calls.get(back)) is None:
            back = back.f_back
        among = self.roots if around is None else around.inside
        self._calls[frame] = among.setdefault((module, code.co_qualname), Call(module, code.co_qualname))


def lines(call: Call, way: tuple[str, ...] = (), depth: int = 1) -> Iterator[tuple[str, int, bool]]:
    """What to print of a call: text, depth, and whether it goes back up; calls within a module are passed over."""
    crosses = call.module.partition("/")[0] in ROOMS and (not way or way[-1] != call.module)
    if crosses:
        up = call.module in way
        yield f"{'  ' * depth}{call.module}: {call.name}{' ^' if up else ''}", depth, up
    for one in call.inside.values():
        yield from lines(one, (*way, call.module) if crosses else way, depth + crosses)


def show(title: str, walk: Walk, start: str) -> None:
    """Print the way from one function on."""
    roots = [root for root in walk.roots.values() if root.name == start]
    shown = [line for root in roots for line in lines(root)]
    depth, ups = max((deep for _, deep, _ in shown), default=0), sum(up for _, _, up in shown)
    print(f"{title}: {len(shown)} calls from module to module, {depth} deep, {ups} back up")
    print("\n".join(text for text, _, _ in shown))


async def main() -> None:
    """Create one sandbox through the API, as a caller does, and print both ways."""
    from tests.support.world import world  # noqa: PLC0415 - of the checkout that is looked at

    walk = Walk()
    async with world() as plane:
        sys.setprofile(walk)
        try:
            answer = await plane.api("POST", "/v1/sandboxes", body={"image": "python:3.12"})
        finally:
            sys.setprofile(None)
        assert answer.status == 201, answer
    api = [name for _, name in walk.roots if name.endswith("__call__")]
    show("a create, until it waits for its start", walk, api[0])
    for start in ("Lives._start", "Starts._run"):
        if any(root.name == start for root in walk.roots.values()):
            show("its start", walk, start)
    for start in ("Readiness.accept", "Sandboxes.accept_push"):
        if any(root.name == start for root in walk.roots.values()):
            show("a readiness push", walk, start)


if __name__ == "__main__":
    sys.path.insert(0, str(Path.cwd()))
    from controlplane.telemetry import configure_log
    from tests.support.virtual_time import VirtualTimeLoop

    configure_log("critical")
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        runner.run(main())
