"""What `make structure` finds in this checkout."""

from __future__ import annotations

from pathlib import Path

from tests.structure import __main__ as command
from tests.structure.callbacks import callbacks
from tests.structure.imports import beside, floors, imports, modules

ROOT = Path(__file__).parent.parent.parent.parent


def test_nothing_in_the_lifecycle_calls_back_into_what_it_is_a_part_of() -> None:
    found = {name: tree for name, tree in modules(ROOT).items() if name.startswith(command.LIFECYCLE)}
    assert [one for one in callbacks(found) if one.upward] == []


def test_the_lifecycle_has_seven_floors_at_most() -> None:
    assert len(floors(beside(imports(modules(ROOT)), command.LIFECYCLE))) <= 7
