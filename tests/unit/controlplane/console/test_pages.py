"""The console's pages: whatever the text in them, it stays text; numbers, pages and charts."""

import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from controlplane.cluster import Command
from controlplane.console import POLICY, Asked, Overview, Pages, SandboxStory
from controlplane.console.chart import HIGH, EndsChart
from controlplane.console.overview import PER_PAGE
from controlplane.console.rows import PoolRow, used
from controlplane.console.sandbox import MOST_COMMANDS, Told
from controlplane.console.words import clock, duration, harmless, moment
from controlplane.errors import Problem
from controlplane.lifecycle.admission.quotas import DeclaredQuota, QuotaUse
from controlplane.lifecycle.pools import Shown
from controlplane.lifecycle.pools.declared import Declared
from controlplane.lifecycle.record.end_times import EndedIn
from controlplane.lifecycle.service.console_views import Found
from controlplane.model import EndCause, Moment, Sandbox, SandboxSpec, State, Usage
from controlplane.model.units import size
from controlplane.store import Page
from tests.support.fake_cluster import FakeSidecars

NOW_MS = 1_800_000_000_000
HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>{{ 7 * 7 }}&lt;"
ESCAPES = "\x1b]0;title\x07\x9b31m\u202egnp.exe\u200b\ud800"
PAGES = Pages()


def sandbox(name: str = "sb-1", **more: object) -> Sandbox:
    spec = SandboxSpec(image="python:3.12")
    made = Sandbox(name, "alice", spec, NOW_MS - 90_000, NOW_MS + 3_600_000, "f", state=State.RUNNING)
    return replace(made, **more)  # type: ignore[arg-type]


def overview(
    *sandboxes: Sandbox,
    asked: Asked | None = None,
    matching: int | None = None,
    running: int = 0,
    among: int | None = None,
    as_of_ms: int = NOW_MS,
    **more: object,
) -> str:
    given = asked or Asked()
    counts = {**dict.fromkeys(State, 0), State.RUNNING: running or len(sandboxes)}
    found = Found(Page(sandboxes, counts), len(sandboxes) if matching is None else matching, among, as_of_ms)
    use = QuotaUse("alice", DeclaredQuota(owner="*", sandboxes=10), Usage(sandboxes=4), 0, 4, 0, ())
    rest: dict[str, object] = {"others": (), "pools": (), "ends": (), "troubles": (), "now_ms": NOW_MS, **more}
    view = Overview.of(("alice", "1.0"), given, found, use, **rest)  # type: ignore[arg-type]
    return PAGES.overview(view)


def story(one: Sandbox, told: Told | None = None) -> str:
    return PAGES.sandbox(SandboxStory.of(("alice", "1.0"), one, told or Told(), NOW_MS))


class _Elements(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


def elements(page: str) -> _Elements:
    parser = _Elements()
    parser.feed(page)
    return parser


def assert_tame(page: str) -> _Elements:
    """Nothing runs or loads but the page's own script, style and icon; no element has a style or a handler."""
    parsed = elements(page)
    for tag, attributes in parsed.found:
        assert tag != "img"
        assert "style" not in attributes
        assert not [name for name in attributes if name.startswith("on")]
        if tag in ("script", "link"):
            address = attributes.get("src") or attributes["href"] or ""
            assert re.fullmatch(r"(\.\./)?static/(console\.(css|js)|icon\.svg)\?[0-9a-f]{12}", address)
    assert [tag for tag, _ in parsed.found].count("script") == 1
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b\u202e\ud800-\udfff]", page)
    return parsed


def test_hostile_text_stays_text_wherever_it_is() -> None:
    spec = SandboxSpec.model_construct(
        **{
            **SandboxSpec(image="a").__dict__,
            "image": HOSTILE + ESCAPES,
            "labels": {HOSTILE + str(number): ESCAPES for number in range(3)},
        }
    )
    end = EndCause("oom_killed", HOSTILE + ESCAPES, NOW_MS, by=HOSTILE)
    timeline = (Moment(NOW_MS, State.STARTING, HOSTILE + ESCAPES),)
    one = sandbox(name=HOSTILE, spec=spec, pool=HOSTILE, claimed_at_ms=1, cold_reason=HOSTILE, timeline=timeline)
    command = Command(HOSTILE, [HOSTILE, ESCAPES], NOW_MS, "", 0, 1, 2)
    pool = Shown(Declared(HOSTILE, "1", None, HOSTILE + ESCAPES), {"why": HOSTILE})
    pages = [
        overview(one, replace(one, state=State.ENDED, end=end), asked=Asked(text=HOSTILE), pools=[pool]),
        overview(troubles=[HOSTILE + ESCAPES]),
        story(one, Told(commands=[command])),
        story(replace(one, state=State.ENDED, end=end), Told(commands_trouble=HOSTILE)),
        story(replace(one, state=State.STARTING), Told(Problem("capacity_unavailable", HOSTILE), HOSTILE)),
    ]
    for page in pages:
        parsed = assert_tame(page)
        assert "<script>alert(1)</script>" in parsed.text or HOSTILE in str(parsed.found)
        assert "{{ 7 * 7 }}" in page
    assert "\\x1b]0;title" in elements(pages[2]).text


def test_no_setting_of_a_sandbox_is_on_a_page() -> None:
    spec = SandboxSpec(image="a", env={"TOKEN": "secret-1"}, cwd="/secret-2", user="secret-3")
    one = sandbox(spec=spec, idempotency_key="secret-4", address="http://secret-5")
    assert "secret" not in overview(one) + story(one)


def test_a_page_is_current_without_its_script_too() -> None:
    assert '<noscript><meta http-equiv="refresh" content="10"></noscript>' in overview()


def test_what_a_page_may_do_is_bounded() -> None:
    policy = POLICY["Content-Security-Policy"]
    assert policy.startswith("default-src 'none'; ")
    assert "unsafe" not in policy
    assert "http" not in policy


def test_a_search_says_where_it_has_looked_at_the_newest_alone() -> None:
    asked = Asked("running", "x")
    assert "1 to 1 of 1, newest first" in overview(sandbox("sb-1"), asked=asked, running=10_001)
    assert "1 to 1 of 1 among the newest 10,000, newest first" in overview(
        sandbox("sb-1"), asked=asked, running=10_001, among=10_000
    )
    assert "none among the newest 4,000" in overview(asked=asked, running=10_001, among=4_000)


def test_a_search_says_how_old_it_is_once_it_is_older_than_a_page_gets() -> None:
    asked = Asked("running", "x")
    assert "newest first, as of 12 s ago" in overview(sandbox("sb-1"), asked=asked, as_of_ms=NOW_MS - 12_000)
    assert "as of" not in overview(sandbox("sb-1"), asked=asked, as_of_ms=NOW_MS - 5_000).split("newest first")[1][:40]
    assert "none, as of 12 s ago" in overview(asked=asked, as_of_ms=NOW_MS - 12_000)


def test_tabs_and_pages_keep_what_is_looked_for() -> None:
    many = [sandbox(f"sb-{number}") for number in range(PER_PAGE)]
    page = overview(*many, asked=Asked("running", "team=a b", 2), matching=3 * PER_PAGE)
    links = [attributes.get("href") for tag, attributes in elements(page).found if tag == "a"]
    assert {"?show=running&q=team%3Da+b", "?q=team%3Da+b", "?show=running&q=team%3Da+b&page=3"} <= {*links}
    assert "51 to 100 of 150, newest first" in page
    last = overview(many[0], asked=Asked(page=4), matching=3 * PER_PAGE + 1)
    assert ('rel="next"' in last, 'rel="prev"' in last) == (False, True)


@pytest.mark.parametrize(
    "query",
    [{"show": "all"}, {"q": "x" * 201}, {"q": "a " * 9}, {"page": "0"}, {"page": "-1"}, {"page": "x"}, {"z": "1"}],
)
def test_an_odd_question_is_refused_and_named(query: dict[str, str]) -> None:
    with pytest.raises(Problem) as caught:
        Asked.of(query)
    assert (caught.value.code, caught.value.details["field"]) == ("invalid_argument", next(iter(query)))


def test_ends_are_drawn_by_fault_and_deletes_apart() -> None:
    steps = [EndedIn(0, {}), EndedIn(1, {"deleted": 500, "oom_killed": 3, "node_lost": 1}), EndedIn(2, {"deleted": 5})]
    chart = EndsChart.of(steps)
    assert [(one.kind, one.high) for one in chart.bars] == [("platform", HIGH / 4), ("workload", HIGH * 3 / 4)]
    assert chart.bars[0].y + chart.bars[0].high == HIGH
    assert [(one.x, one.high) for one in chart.deleted] == [(240, 24), (480, 2)]
    assert dict(chart.by_fault) == {"platform": "1", "capacity": "0", "workload": "3", "caller": "0", "normal": "505"}
    assert [(one.cause, one.count, one.masked) for one in chart.causes] == [
        ("deleted", "505", False),
        ("oom_killed", "3", False),
        ("node_lost", "1", True),
    ]


def test_a_day_without_ends_is_drawn() -> None:
    assert EndsChart.of([EndedIn(0, {})] * 72).bars == []
    assert "none but deletes" in overview(ends=[EndedIn(0, {})] * 72)


def test_a_start_is_divided_into_parts_that_do_not_overlap() -> None:
    timings = {"queue": 100, "pull": 600, "start": 900, "ready_push": 500, "boot": 200, "total": 1500}
    view = SandboxStory.of(("alice", ""), sandbox(timings_ms=timings), Told(), NOW_MS)
    assert [one.took for one in view.phases] == ["100 ms", "600 ms", "300 ms", "300 ms", "200 ms"]


def test_many_commands_are_bounded() -> None:
    commands = [Command(f"e{number}", ["x" * 9999], NOW_MS, "exited", 1, 0, 0) for number in range(MOST_COMMANDS + 5)]
    page = story(sandbox(), Told(commands=commands))
    assert page.count("exited 1") == MOST_COMMANDS
    assert "and 5 older ones" in page
    assert len(page) < 300_000


def test_a_pool_without_a_status_is_shown() -> None:
    row = PoolRow.of(Shown(Declared("p", "1", None), {}), NOW_MS)
    assert (row.ready, row.wanted, row.full, row.paused) == ("0", "0", 100, "")


async def test_usage_is_written_for_people() -> None:
    told = used(await FakeSidecars().usage("http://a", "t"))
    counted = {"cpu_ms": 1000, "cpu_by_node": True}
    assert told == {**counted, "memory": "64 MiB / 512 MiB", "disk": "1 MiB", "processes": "3 / 512"}


def test_words() -> None:
    assert [duration(ms) for ms in (-5, 999, 1_500, 61_000, 7_200_000, 900_000_000)] == [
        "0 ms",
        "999 ms",
        "1.5 s",
        "1.0 min",
        "2.0 h",
        "10 d",
    ]
    assert [size(count) for count in (0, 1023, 1536, 5 << 30, 3 << 40)] == [
        "0 B",
        "1023 B",
        "1.5 KiB",
        "5 GiB",
        "3 TiB",
    ]
    assert (moment(0), clock(1_234)) == ("1970-01-01 00:00:00 UTC", "00:00:01.234")
    assert harmless("a\x1b\u202eb") == "a\\x1b\\u202eb"
    assert harmless(3) == 3
