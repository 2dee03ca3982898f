"""Which name was meant by one that does not exist. Pure."""

from collections.abc import Iterable
from difflib import get_close_matches


def meant(name: str, there: Iterable[str]) -> str:
    """The end of a sentence that asks whether the nearest of the names was meant; empty: none is alike."""
    near = get_close_matches(name, [*there], n=1)
    return f": did you mean {near[0]}?" if near else ""
