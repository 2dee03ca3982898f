"""Which processors and how much memory programs see, on an engine and in gVisor, with and without our variables."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from rollbox import Sandbox
from tests.bench.gvisor.ground import sandboxes
from tests.bench.progress import doing
from tests.bench.record import Baseline, Record

# As the sidecar sets them (sidecar/src/spawner/processors.rs).
VARIABLES: Final = (
    "OMP_NUM_THREADS",
    "PYTHON_CPU_COUNT",
    "LOKY_MAX_CPU_COUNT",
    "PYTEST_XDIST_AUTO_NUM_WORKERS",
    "GOMAXPROCS",
)
WITHOUT: Final = ", without the variables"
CONDITIONS: Final = "a sandbox with cpu=1 and memory=512Mi, on a machine with more of both"
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
    "Node: os.totalmem()": Size("node -p 'os.totalmem() >> 20'", "MiB"),
    "Node: largest heap": Size("node -p 'v8.getHeapStatistics().heap_size_limit >> 20'", "MiB"),
    "/dev/shm": Size("df --output=size -B1M /dev/shm | tail -1", "MiB"),
}


async def measure() -> list[Record]:
    """The records of this scenario. Cost: a minute."""
    async with sandboxes(cpu=(0.01, 1), memory="512Mi") as (engine, gvisor):
        seen = [await _record(name, size, engine, gvisor) for name, size in (PROCESSORS | MEMORY).items()]
        bare = [await _record(name, _without(size), engine, gvisor, WITHOUT) for name, size in PROCESSORS.items()]
        return [*seen, *bare]


def _without(size: Size) -> Size:
    return Size(f"unset {' '.join(VARIABLES)}; {size.command}", size.unit)


async def _record(name: str, size: Size, engine: Sandbox, gvisor: Sandbox, suffix: str = "") -> Record:
    doing(name)
    of_engine, of_gvisor = [await _seen(sandbox, size) for sandbox in (engine, gvisor)]
    return Record(f"{name}{suffix}", of_gvisor, size.unit, CONDITIONS, Baseline("on an engine", of_engine))


async def _seen(sandbox: Sandbox, size: Size) -> float:
    return float((await sandbox.exec(size.command, timeout=120, check=True)).stdout)
