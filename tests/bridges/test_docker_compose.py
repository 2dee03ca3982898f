"""terminal-bench, which calls `docker compose`, as published: over the bridge, as far as that goes."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from tests.bridges.published import of_client
from tests.bridges.running import seen_by_docker
from tests.cluster.toolchain import built
from tests.support.stack import Product

TERMINAL_BENCH: Final = "terminal-bench-0.2.18"
WANTED: Final[dict[str, Any]] = {
    "task": {"ran": [0, ["built", "/app", "/tests"]], "tested": [3, "tested\n"], "left": []},
    "mounts": True,
    "networks": True,
}
# What the table says of the cases in which it is refused.
NOT_SUPPORTED: Final = {
    "mounts": "mounts of log folders, which the Compose files of tasks have (files are copied)",
    "networks": "a project's own network (`network_mode: bridge`)",
}


@pytest.fixture(scope="module")
def terminal_bench(stack: Product, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Any]:
    """What its manager of containers saw, with Docker's own command line and Compose."""
    if shutil.which("go") is None:
        pytest.skip("Docker's command line and Compose are built with go, which is not on PATH")
    programs, config = built("docker")["docker"] / "bin", tmp_path_factory.mktemp("docker")
    Path(config, "cli-plugins").mkdir()
    Path(config, "cli-plugins/docker-compose").symlink_to(programs / "docker-compose")
    path = f"{programs}{os.pathsep}{os.environ['PATH']}"
    told = {"DOCKER_CONFIG": str(config), "DOCKER_BUILDKIT": "0", "PATH": path}
    return seen_by_docker(stack, TERMINAL_BENCH, "terminal_bench_cases.py", told=told)


@of_client(TERMINAL_BENCH)
@pytest.mark.parametrize("case", WANTED)
def test_terminal_bench_sees_what_it_would_see_at_docker(
    terminal_bench: Mapping[str, Any], case: str, not_supported: Callable[[str], None]
) -> None:
    if case in NOT_SUPPORTED:
        not_supported(NOT_SUPPORTED[case])
    assert terminal_bench[case] == WANTED[case]
