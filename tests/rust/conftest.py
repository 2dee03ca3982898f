"""What the tests of programs have in common."""

from pathlib import Path

import pytest

from tests.support.egress_program import built


@pytest.fixture(scope="session")
def program() -> Path:
    """`rollbox-egress`."""
    return built()
