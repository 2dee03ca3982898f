"""Tables that a program writes into a page, between two marks; pure."""

from __future__ import annotations


def inside(page: str, mark: str) -> str:
    """The table between the marks of this name, as the page has it; empty where it has no such marks."""
    return page.partition(f"<!-- {mark}: begin -->")[2].partition(f"<!-- {mark}: end -->")[0]


def between(page: str, mark: str, table: str) -> str:
    """The page with this table between the marks of this name.

    Raises:
        ValueError: it has no such marks.
    """
    begin, end = f"<!-- {mark}: begin -->", f"<!-- {mark}: end -->"
    if not 0 <= page.find(begin) < page.find(end):
        raise ValueError(f"there is no place for the table: {begin} and {end}, in this order")
    before, _, rest = page.partition(begin)
    return f"{before}{begin}\n{table}{end}{rest.partition(end)[2]}"
