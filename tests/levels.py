"""Run every level of tests that this machine allows, and say at the end which ran and why one did not.

    python -m tests.levels             all levels
    python -m tests.levels unit local  these

With CI=true a level that cannot run is a failure.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.installed import why_no_cluster
from tests.support.stack import why_no_engine

ROOT = Path(__file__).parent.parent


def _why_no_cargo() -> str | None:
    return None if shutil.which("cargo") else "cargo is not on PATH"


@dataclass(frozen=True)
class Level:
    """One level.

    Attributes:
        command: runs it.
        why_not: says why it cannot run here (None: it can).
        setup: comes before it.
        stands: exits with 0 when what `setup` brings up is up already; then it stays up.
        teardown: takes it down again.
    """

    name: str
    command: tuple[str, ...]
    why_not: Callable[[], str | None] = lambda: None
    setup: tuple[str, ...] = ()
    stands: tuple[str, ...] = ()
    teardown: tuple[str, ...] = ()
    environ: Mapping[str, str] = field(default_factory=dict)


def _pytest(*folders: str) -> tuple[str, ...]:
    return (sys.executable, "-m", "pytest", "-q", "--durations=12", *(f"tests/{folder}" for folder in folders))


CARGO_TEST = ("cargo", "test", "--locked", "--quiet", "--manifest-path", "gateway-rs/Cargo.toml", "--workspace")
CLUSTER = (sys.executable, "-m", "tests.cluster")
# Of a given cluster only Helm is needed.
TOOLCHAIN = ("tests/cluster/toolchain/build.sh", *(("helm",) if os.environ.get("KUBECONFIG") else ()))
LEVELS = (
    # First, and by itself, for its time: a machine builds it once.
    Level("toolchain", TOOLCHAIN, why_no_cluster),
    Level("rust", CARGO_TEST, _why_no_cargo),
    Level("unit", _pytest("unit")),
    Level("contract", _pytest("contract")),
    Level("local", _pytest("local", "product"), why_no_engine),
    # Its set-up is here and not in `make test`, so that a machine which cannot have a cluster runs all the rest.
    Level(
        *("e2e", _pytest("e2e", "product"), why_no_cluster),
        setup=("make", "--no-print-directory", "cluster", "images"),
        stands=(*CLUSTER, "status"),
        teardown=(*CLUSTER, "down"),
        environ={"ROLLBOX_TEST_PRODUCT": "cluster"},
    ),
)


def _run(level: Level) -> tuple[str, bool]:
    """One line for the summary, and whether the level counts as good."""
    reason = level.why_not()
    if reason is not None:
        return f"left out: {reason}", os.environ.get("CI") != "true"
    print(f"\n== {level.name}", flush=True)
    began = time.monotonic()
    stood = bool(level.stands) and _call(level, level.stands, quiet=True) == 0
    status = _call(level, level.setup) or _call(level, level.command)
    if not stood:
        status = _call(level, level.teardown) or status
    verdict = "passed" if status == 0 else f"FAILED (exit {status})"
    return f"{verdict} in {time.monotonic() - began:.0f} s", status == 0


def _call(level: Level, command: tuple[str, ...], *, quiet: bool = False) -> int:
    """The exit status of a command of the level; 0 when there is none."""
    if not command:
        return 0
    silence = subprocess.DEVNULL if quiet else None
    environ = {**os.environ, **level.environ}
    return subprocess.run(command, cwd=ROOT, env=environ, stdout=silence, stderr=silence, check=False).returncode


def main(names: list[str]) -> int:
    """Run the named levels (all when none is named); the exit status is 1 when any is not good."""
    chosen = [level for level in LEVELS if not names or level.name in names]
    results = [(level.name, *_run(level)) for level in chosen]
    print("\n== levels")
    for name, line, _ in results:
        print(f"  {name:<9} {line}")
    return 0 if all(good for _, _, good in results) else 1


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
