"""Which names lead to a committed image on an engine."""

import pytest

from controlplane.cluster.engine.commit import COMMITS, hidden, place_of, shown
from controlplane.cluster.engine.commit.names import is_kept, kept_name, layer_bytes

ID = 64 * "a"
KEPT = f"{COMMITS}/me/repo:id-{ID}-1024"
NAMES = [f"{COMMITS}/me/repo:1", KEPT]


@pytest.mark.parametrize(
    "name", [f"{COMMITS}/me/repo:1", f"{COMMITS}/me/repo@sha256:{ID}", f"{COMMITS}/me/repo:1@sha256:{ID}"]
)
def test_its_own_name_leads_to_it(name: str) -> None:
    assert not hidden(name, NAMES)


@pytest.mark.parametrize(
    "name",
    [
        # By the digest, under any other name, and by its first digits.
        f"python@sha256:{ID}",
        f"{COMMITS}/you/repo@sha256:{ID}",
        12 * "a",
        # As engines complete short names.
        "rollbox/commits/me/repo:1",
    ],
)
def test_no_other_name_does(name: str) -> None:
    assert hidden(name, NAMES)


def test_no_name_leads_to_one_of_another_installation() -> None:
    ours, theirs = place_of("a1"), place_of("b2")
    assert not hidden(f"{ours}/me/repo:1", [f"{ours}/me/repo:1"], ours)
    assert hidden(f"{theirs}/me/repo:1", [f"{theirs}/me/repo:1"], ours)


def test_an_image_that_nobody_has_committed_has_any_name() -> None:
    assert not hidden("python:3", ["docker.io/library/python:3"])
    assert not hidden(f"python@sha256:{ID}", [])


def test_a_name_that_somebody_else_has_given_it_holds_too() -> None:
    assert not hidden("mine:1", [*NAMES, "localhost/mine:1"])
    assert hidden("other:1", [*NAMES, "localhost/mine:1"])


def test_the_name_that_stays_is_told_where_there_is_no_other() -> None:
    assert kept_name(f"{COMMITS}/me/repo:1", 1024).replace("{id}", ID) == KEPT
    assert shown(NAMES) == [f"{COMMITS}/me/repo:1"]
    assert shown([KEPT]) == [KEPT]
    assert shown(["<none>:<none>"]) == []


def test_the_name_that_stays_tells_the_bytes_of_the_layer() -> None:
    assert (layer_bytes(NAMES), layer_bytes([])) == (1024, None)
    assert (is_kept(KEPT), is_kept(NAMES[0])) == (True, False)


def test_an_image_without_a_name_is_found_by_its_whole_id_alone() -> None:
    for names in ([], ["<none>:<none>"]):
        assert not hidden(f"sha256:{ID}", names)
        assert not hidden(ID, names)
        assert hidden(ID[:12], names)
        assert hidden("python", names)
