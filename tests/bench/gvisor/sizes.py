"""Which processors and how much memory programs see under runc and in gVisor, with and without our variables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from tests.bench.gvisor.ground import containers
from tests.bench.progress import doing
from tests.bench.record import Baseline, Record
from tests.support.containers import engine

# As the sidecar sets them for a limit of one processor (sidecar/src/spawner/processors.rs).
VARIABLES: Final = {
    "OMP_NUM_THREADS": "1",
    "PYTHON_CPU_COUNT": "1",
    "LOKY_MAX_CPU_COUNT": "1",
    "PYTEST_XDIST_AUTO_NUM_WORKERS": "1",
    "GOMAXPROCS": "2",
}
WITHOUT: Final = ", without the variables"
CONDITIONS: Final = "containers of the engine with one processor and 512 MiB, on a machine with more of both"
XDIST: Final = (
    "cd /var/tmp && echo 'def test(): pass' > test_one.py"
    " && python3 -m pytest -p no:cacheprovider -n auto test_one.py | sed -n 's/^\\([0-9]*\\) workers\\{0,1\\} .*/\\1/p'"
)
FLAGS: Final = "java -XX:+UseParallelGC -XX:+PrintFlagsFinal -version 2>/dev/null"


@dataclass(frozen=True)
class Size:
    """What a program sees.

    Attributes:
        command: prints it as a number.
        unit: of it.
    """

    command: str
    unit: str = ""


def _python(expression: str, modules: str) -> Size:
    return Size(f'python3 -c "import {modules}; print({expression})"')


PROCESSORS: Final = {
    "nproc": Size("nproc"),
    "Python: os.cpu_count()": _python("os.cpu_count()", "os"),
    "Python: os.process_cpu_count()": _python("os.process_cpu_count()", "os"),
    "Python: workers of ThreadPoolExecutor()": _python(
        "f.ThreadPoolExecutor()._max_workers", "concurrent.futures as f"
    ),
    "Python: workers of multiprocessing.Pool()": _python("len(m.Pool()._pool)", "multiprocessing as m"),
    "joblib.cpu_count()": _python("joblib.cpu_count()", "joblib"),
    "OpenBLAS: threads": _python("t.threadpool_info()[0]['num_threads']", "numpy, threadpoolctl as t"),
    "OpenMP: threads": _python("c.CDLL('libgomp.so.1').omp_get_max_threads()", "ctypes as c"),
    "pytest -n auto: workers": Size(XDIST),
    "Java: processors": Size(f"{FLAGS} | awk '$2 == \"ParallelGCThreads\" {{print $4}}'"),
    "Node: os.cpus().length": Size("node -p 'os.cpus().length'"),
    "Node: os.availableParallelism()": Size("node -p 'os.availableParallelism()'"),
    "Go: GOMAXPROCS": Size("go-processors"),
}
MEMORY: Final = {
    "MemTotal": Size("awk '$1 == \"MemTotal:\" {print int($2 / 1024)}' /proc/meminfo", "MiB"),
    "Java: largest heap": Size(f"{FLAGS} | awk '$2 == \"MaxHeapSize\" {{print int($4 / 1048576)}}'", "MiB"),
    "Node: os.totalmem()": Size("node -p 'Math.round(os.totalmem() / 2 ** 20)'", "MiB"),
    "Node: largest heap": Size("node -p 'Math.round(v8.getHeapStatistics().heap_size_limit / 2 ** 20)'", "MiB"),
}


async def measure() -> list[Record]:
    """The records of this scenario. Cost: a minute."""
    async with containers("--memory=512m") as both:
        given = [f"--env={name}={value}" for name, value in VARIABLES.items()]
        seen = [await _record(name, size, both, given) for name, size in (PROCESSORS | MEMORY).items()]
        bare = [await _record(f"{name}{WITHOUT}", size, both, ()) for name, size in PROCESSORS.items()]
        return [*seen, *bare]


async def _record(name: str, size: Size, both: tuple[str, str], given: Sequence[str]) -> Record:
    doing(name)
    runc, gvisor = [float(await engine("exec", *given, one, "/bin/sh", "-c", size.command)) for one in both]
    return Record(name, gvisor, size.unit, CONDITIONS, Baseline("under runc", runc))
