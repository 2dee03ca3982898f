"""The processor time of short commands, as a user's installation has them: `python -m tests.bench.cli_start [RUNS]`.

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
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import uvicorn

from controlplane.clock import SystemClock
from tests.support.world import KEY, world

RUNS: Final = 21
START: Final = "from rollbox.cli import main; main()"
PROGRAMS: Final[Mapping[str, tuple[str, ...]]] = {
    "python": ("-c", "pass"),
    "asyncio": ("-c", "import asyncio"),
    "asyncio, typer": ("-c", "import asyncio, typer"),
    "asyncio, typer, aiohttp": ("-c", "import asyncio, typer, aiohttp"),
    "rollbox --help": ("-c", START, "--help"),
    "rollbox ps": ("-c", START, "ps"),
}


def cpu_ms(program: tuple[str, ...], environ: Mapping[str, str]) -> float:
    """User and system time of one run, in milliseconds."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *program], env=dict(environ), check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return 1000 * (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


@contextmanager
def _control_plane() -> Iterator[str]:
    """The address of a control plane in a process of its own, while the block runs."""
    serving = subprocess.Popen([sys.executable, "-m", __spec__.name, "serve"], stdout=subprocess.PIPE, text=True)
    assert serving.stdout is not None
    try:
        yield serving.stdout.readline().strip()
    finally:
        serving.terminate()
        serving.wait()


async def _serve() -> None:
    async with world(clock=SystemClock()) as plane:
        server = uvicorn.Server(uvicorn.Config(plane.api.app, port=0, log_level="error", lifespan="off"))
        serving = asyncio.create_task(server.serve())
        while not server.started:  # noqa: ASYNC110 - nothing tells of it
            await asyncio.sleep(0.01)
        host, port = server.servers[0].sockets[0].getsockname()
        print(f"http://{host}:{port}", flush=True)
        await serving


def main(arguments: list[str]) -> None:
    """Print the median of each program, measured in turn."""
    if arguments[:1] == ["serve"]:
        return asyncio.run(_serve())
    runs = int(arguments[0]) if arguments else RUNS
    with tempfile.TemporaryDirectory() as compiled, _control_plane() as url:
        environ = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        environ |= {"PYTHONPYCACHEPREFIX": str(Path(compiled)), "ROLLBOX_API_KEY": KEY}
        environ["ROLLBOX_URL"] = url
        for program in PROGRAMS.values():
            cpu_ms(program, environ)
        took = [{name: cpu_ms(program, environ) for name, program in PROGRAMS.items()} for _ in range(runs)]
    for name in PROGRAMS:
        print(f"{statistics.median(one[name] for one in took):6.0f} ms  {name}")
    return None


if __name__ == "__main__":
    main(sys.argv[1:])
