"""The report of a run, as data that writes itself. Pure."""

from __future__ import annotations

from rollbox.report.page import page
from rollbox.report.summary import Summary
from rollbox.report.text import text


class RunReport(Summary):
    """What a run has done, as its client saw it; its attributes are those of `rollbox.report.summary.Summary`.

    `numbers()` are plain numbers for a logger, `to_json()` is all of it; `text()` and `html()` are for people.
    """

    __slots__ = ()

    def text(self) -> str:
        """Write it as text, for terminals and logs."""
        return text(self)

    def html(self) -> str:
        """Write it as one HTML page without scripts, which loads nothing."""
        return page(self)
