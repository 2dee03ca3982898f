"""The oldest version of a host is one number: its adapter's, its extra's, and that of the list that tests run with."""

from __future__ import annotations

import re
import tomllib

import pytest

from tests.integrations.hosts import HOSTS
from tests.support.integrations import LISTS, ROOT

EXTRAS = tomllib.loads((ROOT / "integrations/pyproject.toml").read_text())["project"]["optional-dependencies"]
PAGE = (ROOT / "docs/hosts/index.md").read_text()
BOUNDS = {name: bound.partition(";")[0] for extra in EXTRAS.values() for name, _, bound in [extra[0].partition(">=")]}


def whole(version: str) -> str:
    """A version with all its numbers: 2.0.0 of 2."""
    return version + ".0" * (2 - version.count("."))


@pytest.mark.parametrize("host", [name for name, host in HOSTS.items() if host.distribution])
def test_the_oldest_version_that_is_declared_is_one_that_tests_run_with(host: str) -> None:
    name = HOSTS[host].distribution
    module = ROOT / "integrations/src/rollbox_integrations" / host
    source = (module / "__init__.py" if module.is_dir() else module.with_suffix(".py")).read_text()
    required = re.search(rf'require\("{name}", "([^"]+)"', source)
    oldest = LISTS / f"{host}-oldest.txt"
    pins = (oldest if oldest.is_file() else LISTS / f"{host}.txt").read_text()
    pinned = re.search(rf"^{name}==([\w.]+)", pins, re.MULTILINE)
    assert required is not None
    assert pinned is not None
    assert {whole(BOUNDS[name]), required[1], pinned[1]} == {pinned[1]}


@pytest.mark.parametrize("host", [name for name, host in HOSTS.items() if host.distribution])
def test_the_page_says_from_which_version_a_host_works(host: str) -> None:
    told = re.search(rf"^\| \[[^]]+\]\({host.replace('_', '-')}\.md\) \| ([^ ]+) \|", PAGE, re.MULTILINE)
    assert told is not None
    assert told[1] == BOUNDS[HOSTS[host].distribution]
