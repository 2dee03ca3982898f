"""What the first page shows, from what the lifecycle tells. Pure."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final
from urllib.parse import urlencode

from controlplane.console.chart import EndsChart
from controlplane.console.rows import PoolRow, QuotaRow, SandboxRow, WaitingRow
from controlplane.console.words import number
from controlplane.errors import Problem
from controlplane.lifecycle.admission.quotas import QuotaUse
from controlplane.lifecycle.pools import Shown
from controlplane.lifecycle.record.end_times import EndedIn
from controlplane.lifecycle.service.console_views import Found
from controlplane.model import State

PER_PAGE: Final = 50
MOST_WORDS: Final = 8
MOST_PAGE: Final = 2_000
# A search that looks at older records than these says how old.
OLD_MS: Final = 5_000
TABS: Final[Mapping[str, Collection[State]]] = {
    "live": frozenset(State) - {State.ENDED},
    "starting": frozenset({State.REQUESTED, State.QUEUED, State.STARTING}),
    "running": frozenset({State.RUNNING}),
    "ending": frozenset({State.ENDING}),
    "ended": frozenset({State.ENDED}),
}


@dataclass(frozen=True, slots=True)
class Asked:
    """Which sandboxes somebody wants to see.

    Attributes:
        tab: of ``TABS``.
        text: what they are to match, as it was typed.
        page: from 1.
    """

    tab: str = "live"
    text: str = ""
    page: int = 1

    @classmethod
    def of(cls, query: Mapping[str, str]) -> "Asked":
        """From a query string.

        Raises:
            Problem: invalid_argument, naming the parameter.
        """
        if unknown := sorted(query.keys() - {"show", "q", "page"}):
            raise Problem("invalid_argument", f"{unknown[0][:64]!r} is not known here", field=unknown[0][:64])
        tab, text, page = query.get("show", "live"), query.get("q", ""), query.get("page", "1")
        if tab not in TABS:
            raise Problem("invalid_argument", f"show is one of {', '.join(TABS)}", field="show")
        if len(text) > 200 or len(text.split()) > MOST_WORDS:
            raise Problem("invalid_argument", f"q has at most 200 characters and {MOST_WORDS} words", field="q")
        if not (page.isascii() and page.isdigit() and len(page) < 10 and 1 <= int(page) <= MOST_PAGE):
            raise Problem("invalid_argument", f"page is 1 to {MOST_PAGE}", field="page")
        return cls(tab, text, int(page))

    @property
    def states(self) -> Collection[State]:
        """The states of the tab."""
        return TABS[self.tab]

    @property
    def words(self) -> Sequence[str]:
        """What each sandbox has to match."""
        return self.text.split()

    @property
    def offset(self) -> int:
        """How many sandboxes are on the pages before."""
        return (self.page - 1) * PER_PAGE

    def link(self, *, tab: str | None = None, page: int = 1) -> str:
        """The query string of another tab or page with the same text."""
        shown = self.tab if tab is None else tab
        told = {"show": shown, "q": self.text, "page": str(page)}
        plain = {"show": "live", "q": "", "page": "1"}
        return "?" + urlencode({name: value for name, value in told.items() if value != plain[name]})


@dataclass(frozen=True, slots=True)
class Tab:
    """A choice of states, with how many sandboxes are in them."""

    name: str
    link: str
    count: str
    chosen: bool


@dataclass(frozen=True, slots=True)
class Overview:
    """The first page.

    Attributes:
        own: the owner's quota.
        others: for operators: the quotas of all owners that have one.
        waiting: creates that wait, in order; the number of all of them is ``own.waiting``.
        troubles: what could not be read.
        before, after: the links to the pages beside; empty: there is none.
        shown: which of how many are on the page.
    """

    owner: str
    version: str
    now_ms: int
    asked: Asked
    tabs: Sequence[Tab]
    sandboxes: Sequence[SandboxRow]
    shown: str
    before: str
    after: str
    own: QuotaRow
    others: Sequence[QuotaRow]
    waiting: Sequence[WaitingRow]
    pools: Sequence[PoolRow]
    ends: EndsChart
    troubles: Sequence[str]

    @classmethod
    def of(
        cls,
        who: tuple[str, str],
        asked: Asked,
        found: Found,
        use: QuotaUse,
        *,
        others: Sequence[QuotaUse],
        pools: Sequence[Shown],
        ends: Sequence[EndedIn],
        troubles: Sequence[str],
        now_ms: int,
        silent: Mapping[str, int] = MappingProxyType({}),
    ) -> "Overview":
        """Puts it together.

        Args:
            who: the owner's name, and the version of the installation.
            asked: which sandboxes.
            found: these.
            use: of the owner's quota.
            others: of other quotas.
            pools: all.
            ends: of the owner's sandboxes.
            troubles: what could not be read, in words.
            now_ms: Unix time.
            silent: since when which sandboxes have answered no probe.
        """
        last = asked.offset + len(found.page.sandboxes)
        return cls(
            owner=who[0],
            version=who[1],
            now_ms=now_ms,
            asked=asked,
            tabs=_tabs(asked, found.page.counts),
            sandboxes=[SandboxRow.of(one, now_ms, silent.get(one.id)) for one in found.page.sandboxes],
            shown=_shown(asked, found, last, now_ms),
            before=asked.link(page=asked.page - 1) if asked.page > 1 else "",
            after=asked.link(page=asked.page + 1) if last < found.matching and asked.page < MOST_PAGE else "",
            own=QuotaRow.of(use),
            others=[QuotaRow.of(one) for one in others],
            waiting=WaitingRow.all_of(use, now_ms),
            pools=[PoolRow.of(one, now_ms) for one in pools],
            ends=EndsChart.of(ends),
            troubles=troubles,
        )


def _tabs(asked: Asked, counts: Mapping[State, int]) -> list[Tab]:
    return [
        Tab(name, asked.link(tab=name), number(sum(counts.get(one, 0) for one in states)), name == asked.tab)
        for name, states in TABS.items()
    ]


def _shown(asked: Asked, found: Found, last: int, now_ms: int) -> str:
    among = "" if found.among is None else f" among the newest {number(found.among)}"
    age_ms = now_ms - found.as_of_ms
    old = f", as of {age_ms // 1000} s ago" if age_ms > OLD_MS else ""
    if not found.page.sandboxes:
        return (f"none on this page{among}" if found.matching else f"none{among}") + old
    return f"{number(asked.offset + 1)} to {number(last)} of {number(found.matching)}{among}, newest first{old}"
