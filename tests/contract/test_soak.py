"""A short storm of `make chaos`: parts die under clients, and once all is at rest every invariant has held."""

from __future__ import annotations

import pytest

from tests.chaos.__main__ import soak

SECONDS = 20.0
# Of its choices only the moments differ from run to run; in so short a time it kills parts of all kinds but one.
SEED = 8


@pytest.mark.timeout(1200)
async def test_twenty_seconds_of_storm_break_no_invariant() -> None:
    record = await soak(SECONDS, SEED)
    assert sum(record["blows"].values()) >= 1
    assert all(verdict["tried"] for verdict in record["verdicts"]), record["verdicts"]
    assert {verdict["name"]: verdict["violations"] for verdict in record["verdicts"] if verdict["violations"]} == {}
