"""The adapters of hosts, each by its own suite beside that host, and against the host's types."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integrations.hosts import HOSTS, Host
from tests.support import integrations, sdists
from tests.support.committing import BUILDS, committing
from tests.support.containers import engine_command
from tests.support.images import IMAGE, runtime_image
from tests.support.installed import Installed, kubeconfig, program
from tests.support.stack import Product

# Of the oldest versions those hosts run that have a list of them: for the others what is pinned is the oldest.
RUN = [name for name in HOSTS if integrations.lists(name)[-1].is_file()]
OLDER = """
import importlib, importlib.metadata, sys

there = importlib.metadata.version
importlib.metadata.version = lambda name: "0.0.1" if name == sys.argv[1] else there(name)
importlib.import_module(sys.argv[2])
"""
# The longest runs minutes of the host's own tests.
pytestmark = [pytest.mark.tools, pytest.mark.timeout(1200)]


if integrations.BACKEND == "gvisor":

    @pytest.fixture(scope="module")
    def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Product]:
        """A release of its own, which has what hosts ask for and that of other tests has not: builds and policies."""
        values = (
            "egress.enabled=true",
            "egress.replicas=1",
            "gateway.portsDomain=ports.test",
            *BUILDS,
        )
        with asyncio.Runner() as runner:
            installing = committing("rollbox-hosts", tmp_path_factory.mktemp("upstream"), *values, direct=True)
            yield runner.run(installing.__aenter__())
            runner.run(installing.__aexit__(None, None, None))


def checkout(host: Host) -> str:
    """The folder of a host that no registry has; empty for the others. The test is skipped where there is none."""
    if not host.checkout:
        return ""
    folder = os.environ.get(host.checkout, "")
    if not folder:
        pytest.skip(f"no registry has {host.title}: {host.checkout} names a folder with its checkout")
    return folder


def version(name: str, python: Path, source: str) -> str:
    """The version of a host, as the table of the docs has it."""
    if source:
        words = ("git", "-C", source, "describe", "--always", "--abbrev=7")
        return f"at {subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()}"
    distribution = HOSTS[name].distribution
    modules = [" ".join(one) for one in integrations.modules_of_javascript(name).items()]
    return ", ".join([integrations.versions(python, distribution)[distribution], *modules])


def own_tests(name: str, python: Path) -> Path:
    """The folder with the tests that a host's source distribution has, of the version that is installed."""
    distribution = HOSTS[name].distribution
    there = integrations.versions(python, distribution)[distribution]
    folder = integrations.PLACE / integrations.named(name)
    return sdists.unpacked(distribution, there, integrations.pinned(name), folder) / "tests"


def losing(stack: Product) -> str:
    """The line that takes a sandbox away behind the platform's back; `{id}` stands for its id."""
    if not isinstance(stack, Installed):
        return f"{engine_command()} kill rollbox-{{id}}-target"
    where = f"--kubeconfig {kubeconfig()} --namespace {stack.sandboxes}"
    return f"{program('kubectl')} {where} delete pod {{id}} --wait=false"


@pytest.mark.parametrize("name", RUN)
def test_the_suite_of_a_host_passes(stack: Product, name: str) -> None:
    host = HOSTS[name]
    source = checkout(host)
    python = integrations.environment(name, host.python)
    environ = {
        **stack.environment(),
        "ROLLBOX_URL": stack.url,
        "ROLLBOX_API_KEY": stack.api_key,
        "ROLLBOX_TEST_IMAGE": IMAGE,
        "ROLLBOX_TEST_LOSE": losing(stack),
        **{f"ROLLBOX_TEST_{one.upper()}_IMAGE": runtime_image(one) for one in host.images},
        **({"PYTHONPATH": source} if source else {}),
        **({"ROLLBOX_TEST_OWN": str(own_tests(name, python))} if host.own_tests else {}),
    }
    record = integrations.record_of(name)
    found = integrations.suite(python, f"on_{name}", environ, record, version(name, python, source))
    assert found.failed == {}
    assert found.passed


@pytest.mark.parametrize("name", [name for name in RUN if HOSTS[name].distribution])
def test_an_older_host_is_refused_by_the_versions_that_work(name: str) -> None:
    """When the adapter is imported, so before anything is created."""
    host = HOSTS[name]
    python = integrations.environment(name, host.python)
    words = ("-c", OLDER, host.distribution, f"rollbox_integrations.{name}")
    told = subprocess.run([python, *words], capture_output=True, text=True, check=False)
    assert told.returncode == 1
    why = told.stderr.splitlines()[-1]
    assert re.match(rf"ImportError: {host.distribution} 0\.0\.1 is here; rollbox works with \S+ and newer: pip", why)


@pytest.mark.parametrize("name", RUN)
def test_an_adapter_fits_the_types_of_its_host(name: str) -> None:
    host = HOSTS[name]
    environ = {**os.environ, "MYPYPATH": checkout(host)}
    python = integrations.environment(name, host.python)
    package = integrations.ROOT / "integrations/src/rollbox_integrations" / name
    source = package if package.is_dir() else package.with_suffix(".py")
    words = (
        "-m",
        "mypy",
        "--python-executable",
        str(python),
        "--python-version",
        integrations.minor(host.python),
        str(source),
    )
    told = subprocess.run(
        [sys.executable, *words], cwd=integrations.ROOT, env=environ, capture_output=True, text=True, check=False
    )
    assert told.returncode == 0, told.stdout + told.stderr
