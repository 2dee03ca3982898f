"""Which EndpointSlices are written for changes of names."""

from __future__ import annotations

from itertools import count

from hypothesis import given
from hypothesis import strategies as st

from controlplane.cluster.kubernetes.names.slices import MOST, Slice, Slices, endpoints, read


def slices(*found: Slice, services: int = 2) -> Slices:
    numbers = count()
    return Slices("r", lambda name: f"shard-{sum(name.encode()) % services}", lambda of: f"{of}-{next(numbers)}", found)


def test_a_herd_changes_few_slices_and_each_holds_a_hundred() -> None:
    known = slices()
    for number in range(1000):
        known.put(f"sb-{number}", f"10.0.{number // 250}.{number % 250}")
    assert len(known.held) == 1000
    sizes = [len(known[name].endpoints) for name in known.changed]
    assert sum(sizes) == 1000
    assert max(sizes) == MOST
    assert len(sizes) <= 1000 / MOST + 2


def test_a_change_writes_the_slice_that_it_is_in_and_no_other() -> None:
    known = slices(services=1)
    for number in range(250):
        known.put(f"sb-{number}", "10.0.0.1")
    known.changed.clear()
    known.put("sb-7", "10.0.0.1")
    assert not known.changed
    known.put("sb-7", "10.0.0.2")
    (name,) = known.changed
    assert known[name].endpoints["sb-7"] == "10.0.0.2"
    known.put("sb-7", "")
    assert "sb-7" not in known[name].endpoints
    # What comes is put where something is written anyway.
    known.put("sb-1000", "10.0.0.3")
    assert known.changed == {name}
    known.put("sb-7", "")
    assert known.changed == {name}


def test_an_address_of_another_family_is_in_another_slice() -> None:
    known = slices(services=1)
    known.put("sb-1", "10.0.0.1")
    known.put("sb-1", "fd00::1")
    assert {(known[name].family, len(known[name].endpoints)) for name in known.changed} == {("IPv4", 0), ("IPv6", 1)}


def test_a_name_that_is_there_twice_is_there_once_afterwards() -> None:
    twice = [Slice(f"shard-0-{at}", "shard-0", "IPv4", {"sb-1": f"10.0.0.{at}"}, "1") for at in "ab"]
    known = slices(*twice, services=1)
    known.put("sb-1", "10.0.0.9")
    assert [dict(known[name].endpoints) for name in ("shard-0-a", "shard-0-b")] == [{"sb-1": "10.0.0.9"}, {}]
    assert known.changed == {"shard-0-a", "shard-0-b"}


@given(st.lists(st.tuples(st.integers(0, 30), st.sampled_from(["", "10.0.0.1", "10.0.0.2", "fd00::1"])), max_size=60))
def test_what_is_written_is_what_was_said_last(changes: list[tuple[int, str]]) -> None:
    known, said = slices(), {}
    for number, address in changes:
        known.put(f"sb-{number}", address)
        said[f"sb-{number}"] = address
    # Through the objects, as another replica reads them.
    again = [
        read({**known.manifest(known[name], {"uid": "u"}), "endpoints": endpoints(known[name])})
        for name in known.changed
    ]
    there: dict[str, str] = {}
    for one in again:
        there |= one.endpoints
    assert there == {name: address for name, address in said.items() if address}
    assert sorted(slices(*again).held) == sorted(there)
