"""How long calls took, where nothing else than success counts."""

from __future__ import annotations

from collections.abc import Iterable

from rollbox.bench.arrivals import Met, milliseconds
from rollbox.bench.sample import Wrong


def took_ms(met: Iterable[Met]) -> list[float]:
    """Each call's milliseconds.

    Raises:
        RuntimeError: one of them did not do what it should.
    """
    found = [*met]
    wrong = [one.answer.code for one in found if isinstance(one.answer, Wrong)]
    if wrong:
        raise RuntimeError(f"{len(wrong)} of {len(found)} calls went wrong: {wrong[0]}")
    return milliseconds(found)
