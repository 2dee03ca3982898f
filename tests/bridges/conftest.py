"""Has runs leave records in build/bridges/records, of which `make results` makes the tables of the docs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.bridges.published import CLIENTS
from tests.bridges.results import RECORDS
from tests.support.committing import BUILDS, committing
from tests.support.images import AGAINST_CLUSTER
from tests.support.junit import CASES, CLIENT, REFUSED
from tests.support.stack import Product

if AGAINST_CLUSTER:

    @pytest.fixture(scope="session")
    def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Product]:
        """A release of its own, which has what clients ask for and that of other tests has not: images, policies."""
        values = ("egress.enabled=true", "egress.replicas=1", *BUILDS)
        with asyncio.Runner() as runner:
            installing = committing("rollbox-bridged", tmp_path_factory.mktemp("upstream"), *values, direct=True)
            yield runner.run(installing.__aenter__())
            runner.run(installing.__aexit__(None, None, None))


# Forty cases of one client, each with sandboxes of its own, on a machine that has much else to do.
LIMIT_S = 1200
KEPT = pytest.StashKey[Path]()
# Options by which a run has parts of its files alone, or tells elsewhere what it did.
PARTS = ("keyword", "markexpr", "deselect", "lf", "maxfail", "collectonly", "xmlpath")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Have a run of whole files write what its tests did, in the place of what the same run has written before."""
    named = any("::" in one for one in config.args)
    if named or hasattr(config, "workerinput") or any(getattr(config.option, name, None) for name in PARTS):
        return
    files = "+".join(sorted(Path(one).stem for one in config.args))
    kept = config.stash[KEPT] = RECORDS / f"{files}-{'gvisor' if AGAINST_CLUSTER else 'engine'}.xml"
    config.option.xmlpath = str(kept)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Remove the record of a run that was interrupted: it has not all tests of its clients."""
    record = session.config.stash.get(KEPT, None)
    if record is not None and exitstatus not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        record.unlink(missing_ok=True)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Have each test tell whose it is, and give it the time of all cases: the first of a client's tests runs them.

    Raises:
        KeyError: a test is of a client that no table has.
    """
    for item in items:
        if item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(LIMIT_S))
        if (mark := item.get_closest_marker(CLIENT)) is not None:
            assert CLIENTS[mark.args[0]]
            item.user_properties.append((CLIENT, mark.args[0]))


@pytest.fixture
def not_supported(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """Has the table say of the test's client that this is not supported, where the test passes."""
    return lambda what: request.node.user_properties.append((REFUSED, what))


@pytest.fixture
def passed(request: pytest.FixtureRequest) -> Callable[[int], None]:
    """Has the table count the test as so many, where it passes."""
    return lambda cases: request.node.user_properties.append((CASES, cases))
