"""Times of short commands, as a user's installation has them: `python -m tests.bench.cli_start [RUNS [SANDBOXES]]`.

Against a real control plane (with a simulated cluster) in a process of its own, and from compiled modules, as pip
leaves them: a checkout that may not write its `__pycache__` compiles all of them at every start.
"""

from __future__ import annotations

import asyncio
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

import uvicorn

from controlplane.clock import SystemClock
from controlplane.lifecycle import Options
from controlplane.model import SandboxSpec
from tests.support.fake_cluster import FakeCluster
from tests.support.world import KEY, OWNER, world

RUNS: Final = 21
START: Final = "from rollbox.cli import main; main()"
PROGRAMS: Final[Mapping[str, tuple[str, ...]]] = {
    "python": ("-c", "pass"),
    "asyncio": ("-c", "import asyncio"),
    "asyncio, typer": ("-c", "import asyncio, typer"),
    "asyncio, typer, aiohttp": ("-c", "import asyncio, typer, aiohttp"),
    "rollbox --version": ("-c", START, "--version"),
    "rollbox --help": ("-c", START, "--help"),
    "rollbox ps": ("-c", START, "ps"),
    "rollbox top --json": ("-c", START, "top", "--json", "--label", "run=none"),
}


class Spent(NamedTuple):
    """What one run took, in milliseconds: of a processor (user and system), and by the clock."""

    cpu_ms: float
    wall_ms: float


def spent(program: tuple[str, ...], environ: Mapping[str, str]) -> Spent:
    """Run it once."""
    before, began_s = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run([sys.executable, *program], env=dict(environ), check=True, stdout=subprocess.DEVNULL)
    after, wall_ms = resource.getrusage(resource.RUSAGE_CHILDREN), 1000 * (time.perf_counter() - began_s)
    return Spent(1000 * (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime), wall_ms)


@contextmanager
def _control_plane(sandboxes: int) -> Iterator[str]:
    """The address of a control plane in a process of its own, which has so many sandboxes, while the block runs."""
    command = [sys.executable, "-m", __spec__.name, "serve", str(sandboxes)]
    serving = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert serving.stdout is not None
    try:
        yield serving.stdout.readline().strip()
    finally:
        serving.terminate()
        serving.wait()


async def _serve(sandboxes: int) -> None:
    cluster = FakeCluster(start_s=0, ready_s=0, slots=sandboxes)
    async with world(cluster, clock=SystemClock(), options=Options(starts_in_flight=64)) as plane:
        spec = SandboxSpec(image="registry.example/team/image:1", labels={"run": "r1"})
        await asyncio.gather(*(plane.create(OWNER, spec) for _ in range(sandboxes)))
        server = uvicorn.Server(uvicorn.Config(plane.api.app, port=0, log_level="error", lifespan="off"))
        serving = asyncio.create_task(server.serve())
        while not server.started:  # noqa: ASYNC110 - nothing tells of it
            await asyncio.sleep(0.01)
        host, port = server.servers[0].sockets[0].getsockname()
        print(f"http://{host}:{port}", flush=True)
        await serving


def main(arguments: list[str]) -> None:
    """Print medians of each program, measured in turn."""
    if arguments[:1] == ["serve"]:
        return asyncio.run(_serve(int(arguments[1])))
    runs, sandboxes = (*map(int, arguments), *(RUNS, 0)[len(arguments) :])
    with tempfile.TemporaryDirectory() as compiled, _control_plane(sandboxes) as url:
        environ = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        environ |= {"PYTHONPYCACHEPREFIX": str(Path(compiled)), "ROLLBOX_API_KEY": KEY}
        environ["ROLLBOX_URL"] = url
        for program in PROGRAMS.values():
            spent(program, environ)
        took = [{name: spent(program, environ) for name, program in PROGRAMS.items()} for _ in range(runs)]
    print(f"medians (least) of {runs} runs in turn, {sandboxes} sandboxes")
    for name in PROGRAMS:
        cpu_ms, wall_ms = zip(*(one[name] for one in took), strict=True)
        cpu, wall = (f"{statistics.median(ms):5.0f} ({min(ms):.0f})" for ms in (cpu_ms, wall_ms))
        print(f"cpu {cpu:>12} ms   wall {wall:>12} ms   {name}")
    return None


if __name__ == "__main__":
    main(sys.argv[1:])
