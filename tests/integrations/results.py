"""Writes the table of hosts in docs/hosts/index.md from the records that runs of their suites have left.

python -m tests.integrations.results    # rows of hosts without a record stay as they are
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from tests.integrations.hosts import ADAPTER, HOSTS, Host
from tests.support.integrations import PLACE, ROOT
from tests.support.junit import Record, Test, read_all
from tests.support.marked import between, inside
from tests.support.result_table import OLDEST, PLACES, Seen, parsed, rendered, renewed, result

PAGE: Final = ROOT / "docs/hosts/index.md"
MARK: Final = "hosts"


def filled(page: str, records: Mapping[str, Record]) -> str:
    """The page with what was seen last of each host.

    Args:
        page: so far.
        records: by the names of their files.

    Raises:
        ValueError: the page has no such table.
    """
    runs = [seen(name, record) for name, record in sorted(records.items(), key=lambda one: one[1].when)]
    order = [host.title for host in HOSTS.values()]
    rows = renewed(parsed(inside(page, MARK)), [run for run in runs if run is not None], order)
    return between(page, MARK, rendered(rows, "host"))


def seen(name: str, record: Record) -> Seen | None:
    """What a record says; None where it is of the newest versions, which nothing pins, or of no host.

    Args:
        name: of its file: HOST-BACKEND, or HOST-oldest-BACKEND.
        record: what the tests did; its name is the host's version.
    """
    kept, _, backend = name.rpartition("-")
    host, _, which = kept.partition("-")
    if host not in HOSTS or which not in ("", "oldest") or backend not in PLACES or not record.tests:
        return None
    version = record.name + (OLDEST if which else "")
    return Seen(HOSTS[host].title, version, PLACES[backend], dict(_results(HOSTS[host], record.tests)))


def _results(host: Host, tests: Sequence[Test]) -> Iterator[tuple[str, str]]:
    for module, what in host.programs.items():
        if found := [one for one in tests if one.module == module]:
            yield what, result(found)
    if found := [one for one in tests if one.module not in host.programs]:
        yield ADAPTER, result(found)


def main() -> None:
    """Write the page."""
    found = read_all(PLACE)
    PAGE.write_text(filled(PAGE.read_text(), found))
    print(f"{PAGE.relative_to(ROOT)} says what {', '.join(sorted(found)) or 'no records'} have told")


if __name__ == "__main__":
    main()
