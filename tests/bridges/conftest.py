"""Has runs leave records in build/bridges/records, of which `make results` makes the tables of the docs."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

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
# The clients that a run is of, by their names in `CLIENTS`; none: all.
CHOSEN: Final = os.environ.get("ROLLBOX_TEST_CLIENTS", "").split()
KEPT = pytest.StashKey[Path]()
# Options by which a run has parts of its files alone, or tells elsewhere what it did.
PARTS = ("keyword", "markexpr", "deselect", "lf", "maxfail", "collectonly", "xmlpath")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Have a run of whole files, or of whole clients, write what its tests did in the place of what it wrote before.

    Raises:
        UsageError: a client is chosen that no table has.
    """
    if unknown := [one for one in CHOSEN if one not in CLIENTS]:
        raise pytest.UsageError(f"ROLLBOX_TEST_CLIENTS names {unknown[0]!r}; there are {', '.join(CLIENTS)}")
    named = any("::" in one for one in config.args)
    if named or hasattr(config, "workerinput") or any(getattr(config.option, name, None) for name in PARTS):
        return
    files = "+".join(sorted(Path(one).stem for one in config.args))
    run = "-".join((files, *sorted(CHOSEN), "gvisor" if AGAINST_CLUSTER else "engine"))
    kept = config.stash[KEPT] = RECORDS / f"{run}.xml"
    config.option.xmlpath = str(kept)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Remove the record of a run that was interrupted: it has not all tests of its clients."""
    record = session.config.stash.get(KEPT, None)
    if record is not None and exitstatus not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        record.unlink(missing_ok=True)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave those of the chosen clients, each of which tells whose it is and has the time of all cases.

    The first of a client's tests runs them.

    Raises:
        KeyError: a test is of a client that no table has.
    """
    for item in items:
        if item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(LIMIT_S))
        if (mark := item.get_closest_marker(CLIENT)) is not None:
            assert CLIENTS[mark.args[0]]
            item.user_properties.append((CLIENT, mark.args[0]))
    if CHOSEN:
        left_out = [item for item in items if dict(item.user_properties).get(CLIENT) not in CHOSEN]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]


@pytest.fixture
def not_supported(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """Has the table say of the test's client that this is not supported, where the test passes."""
    return lambda what: request.node.user_properties.append((REFUSED, what))


@pytest.fixture
def passed(request: pytest.FixtureRequest) -> Callable[[int], None]:
    """Has the table count the test as so many, where it passes."""
    return lambda cases: request.node.user_properties.append((CASES, cases))
