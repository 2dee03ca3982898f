"""A plugin of pytest: files that take long begin before all others, else a process runs one of them alone at the end.

pytest itself sorts the files of a folder by their names, also where some of them are named beside it.
"""

from __future__ import annotations

from pathlib import Path

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--first", action="append", default=[], metavar="FILE", help="run its tests before all others")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Puts the tests of these files first; the order is as it was otherwise."""
    rank = {(config.rootpath / one).resolve(): number for number, one in enumerate(config.getoption("--first"))}
    items.sort(key=lambda item: rank.get(Path(item.path), len(rank)))
