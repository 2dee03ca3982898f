"""The adapters of hosts, each by its own suite beside that host, and against the host's types."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.support import integrations
from tests.support.committing import committing
from tests.support.images import IMAGE
from tests.support.stack import Product

BACKEND = "gvisor" if os.environ.get("ROLLBOX_TEST_PRODUCT") == "cluster" else "engine"
# The version of Python that each has: where it is not this program's, the oldest that the host runs on.
HOSTS = {
    "inspect": "3.11",
    "verifiers": "3.11",
    "harbor": "3.12",
    "mcp": "3.11",
    "nemo_gym": "3.13.14",
    "openenv": "3.11",
    "mini_swe_agent": "3.11",
    "swe_rex": "3.11",
    "tinker_cookbook": "3.11",
    "uni_agent": "3.11",
    "openai_agents": "3.11",
    "smolagents": "3.11",
    "deepagents": "3.11",
    "llm_sandbox": "3.11",
    "open_instruct": "3.12",
}
# Hosts that no registry has, each with the variable that names a folder with its checkout.
CHECKOUTS = {"uni_agent": "ROLLBOX_TEST_UNI_AGENT", "open_instruct": "ROLLBOX_TEST_OPEN_INSTRUCT"}
# The longest runs minutes of the host's own tests.
pytestmark = [pytest.mark.tools, pytest.mark.timeout(1200)]


if BACKEND == "gvisor":
    # Those of the tests of builds.
    LIMITS = {"cpuMillicores": 2000, "memoryMebibytes": 1024, "diskMebibytes": 1536}

    @pytest.fixture(scope="module")
    def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Product]:
        """A release of its own, which has what hosts ask for and that of other tests has not: builds and policies."""
        values = (
            "egress.enabled=true",
            "egress.replicas=1",
            "gateway.portsDomain=ports.test",
            "builds.enabled=true",
            # The kubelet of `make cluster` has a folder of its own, where gVisor's shim finds no volume.
            "builds.state=memory",
            *(f"builds.limits.{name}={value}" for name, value in LIMITS.items()),
        )
        with asyncio.Runner() as runner:
            installing = committing("rollbox-hosts", tmp_path_factory.mktemp("upstream"), *values, direct=True)
            yield runner.run(installing.__aenter__())
            runner.run(installing.__aexit__(None, None, None))


def checkout(host: str) -> str:
    """The folder of a host that no registry has; empty for the others. The test is skipped where there is none."""
    if host not in CHECKOUTS:
        return ""
    folder = os.environ.get(CHECKOUTS[host], "")
    if not folder:
        pytest.skip(f"no registry has {host}: {CHECKOUTS[host]} names a folder with its checkout")
    return folder


@pytest.mark.parametrize("host", HOSTS)
def test_the_suite_of_a_host_passes(stack: Product, host: str) -> None:
    source = checkout(host)
    python = integrations.environment(host, HOSTS[host])
    environ = {
        **stack.environment(),
        "ROLLBOX_URL": stack.url,
        "ROLLBOX_API_KEY": stack.api_key,
        "ROLLBOX_TEST_IMAGE": IMAGE,
        **({"PYTHONPATH": source} if source else {}),
    }
    found = integrations.suite(python, f"on_{host}", environ, integrations.PLACE / f"{host}-{BACKEND}.xml")
    assert found.failed == {}
    assert found.passed


@pytest.mark.parametrize("host", HOSTS)
def test_an_adapter_fits_the_types_of_its_host(host: str) -> None:
    environ = {**os.environ, "MYPYPATH": checkout(host)}
    python = integrations.environment(host, HOSTS[host])
    package = integrations.ROOT / "integrations/src/rollbox_integrations" / host
    source = package if package.is_dir() else package.with_suffix(".py")
    words = (
        "-m",
        "mypy",
        "--python-executable",
        str(python),
        "--python-version",
        integrations.minor(HOSTS[host]),
        str(source),
    )
    told = subprocess.run(
        [sys.executable, *words], cwd=integrations.ROOT, env=environ, capture_output=True, text=True, check=False
    )
    assert told.returncode == 0, told.stdout + told.stderr
