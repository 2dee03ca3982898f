"""Writes the tables of clients in the pages of the bridges from the records that runs of their tests have left.

python -m tests.bridges.results    # rows of clients without a record stay as they are
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from tests.bridges.published import CLIENTS, PAGES, ROOT, Client
from tests.support.junit import Record, read_all
from tests.support.marked import between, inside
from tests.support.result_table import PLACES, Row, Seen, parsed, rendered, renewed, result

RECORDS: Final = ROOT / "build/bridges/records"


def filled(page: str, bridge: str, records: Mapping[str, Record]) -> str:
    """The page of a bridge with what was seen last of each of its clients.

    Args:
        page: so far.
        bridge: whose page it is.
        records: by the names of their files.

    Raises:
        ValueError: the page has no such table.
    """
    runs = [run for name, one in sorted(records.items(), key=lambda one: one[1].when) for run in seen(name, one)]
    kept = parsed(inside(page, bridge))
    clients = [client for client in CLIENTS.values() if client.bridge == bridge]
    rows = [row for client in clients for row in _rows(client, kept, runs)]
    return between(page, bridge, rendered(rows, "client"))


def seen(name: str, record: Record) -> Iterator[Seen]:
    """What a record says of each client.

    Args:
        name: of its file: WHAT-PLACE.
        record: what the tests did.
    """
    place = PLACES[name.rpartition("-")[2]]
    # One that was skipped says nothing of its client: what it needs was not there.
    ran = [one for one in record.tests if one.outcome != "skipped"]
    for key, client in CLIENTS.items():
        if tests := [one for one in ran if one.client == key]:
            yield Seen(client.title, client.version, place, {client.what: result(tests)})


def _rows(client: Client, kept: Sequence[Row], runs: Sequence[Seen]) -> Sequence[Row]:
    """The row of a client, in the one version that it has."""
    before = [replace(row, what=client.what) for row in kept if _is_of(client, row)]
    return renewed(before, [run for run in runs if _is_of(client, run)], [client.title])


def _is_of(client: Client, one: Row | Seen) -> bool:
    return (one.program, one.version) == (client.title, client.version)


def main() -> None:
    """Write the pages."""
    records = read_all(RECORDS)
    for bridge, page in PAGES.items():
        page.write_text(filled(page.read_text(), bridge, records))
    told = ", ".join(sorted(records)) or "no records"
    print(f"{', '.join(str(page.relative_to(ROOT)) for page in PAGES.values())} say what {told} have told")


if __name__ == "__main__":
    main()
