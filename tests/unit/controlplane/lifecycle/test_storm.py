"""Two control planes on one store, whatever goes wrong and in whatever order: what was promised holds."""

import pytest

from tests.support.examples import EXAMPLES
from tests.support.storm import Storm

# One takes 0.15 s of a processor.
SEEDS = max(20, EXAMPLES - 30)


@pytest.mark.parametrize("seed", range(SEEDS))
async def test_what_was_promised_holds(seed: int) -> None:
    storm = Storm(seed)
    assert await storm.run() == [], "\n".join(storm.log)
