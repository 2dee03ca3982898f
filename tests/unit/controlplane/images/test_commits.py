"""Names of committed images: whose they are can be read from them, and nobody gets at another one's."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.images import built_on, folder, is_foreign, parse, target

PLACE = "localhost/rollbox/commits"
OWNERS = st.one_of(st.text(min_size=1, max_size=60), st.from_regex(r"[a-z0-9-]{1,50}", fullmatch=True))


@given(OWNERS, OWNERS)
def test_no_two_owners_have_the_same_folder(one: str, other: str) -> None:
    assert (folder(one) == folder(other)) == (one == other)
    assert parse(f"{PLACE}/{folder(one)}/a:1").repository.count("/") == 3


def test_an_owner_cannot_be_called_like_the_digest_of_another() -> None:
    hashed = folder("Team A")
    assert hashed.startswith("owner-")
    assert folder(hashed) != hashed


@given(OWNERS, OWNERS)
def test_what_one_owner_names_is_foreign_to_every_other(one: str, other: str) -> None:
    name = parse(target(PLACE, one, "repo:v1"))
    assert is_foreign(PLACE, other, name) == (one != other)
    assert is_foreign(PLACE, other, name.at("sha256:" + 64 * "0")) == (one != other)


def test_a_name_is_completed_and_may_be_one_that_was_told() -> None:
    assert target(PLACE, "me", "repo") == f"{PLACE}/me/repo:latest"
    assert target(PLACE, "me", "a/b:v1") == f"{PLACE}/me/a/b:v1"
    assert target(PLACE, "me", f"{PLACE}/me/a/b:v1") == f"{PLACE}/me/a/b:v1"


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("", "must be"),
        ("UPPER", "must be"),
        ("../you/repo", "must be"),
        ("/repo", "must be"),
        ("a//b", "must be"),
        ("a:", "is not a tag"),
        ("a:b:c", "is not a tag"),
        (f"a:{129 * 'x'}", "is not a tag"),
        ("a@sha256:" + 64 * "0", "has a digest"),
        ("a:id-" + 64 * "0", "is taken"),
        (300 * "a", "255 characters"),
        ("a b", "must be"),
        ("a\n", "must be"),
        ("\ud800", "must be"),
    ],
)
def test_a_malformed_name_is_refused(name: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        target(PLACE, "me", name)


def test_another_owners_name_becomes_a_folder_of_ones_own() -> None:
    assert target(PLACE, "me", f"{PLACE}/you/repo:1") == f"{PLACE}/me/{PLACE}/you/repo:1"


@pytest.mark.parametrize(
    ("name", "foreign"),
    [
        (f"{PLACE}/you/repo", True),
        (f"{PLACE}/me/repo", False),
        (f"{PLACE}/me-too/repo", True),
        (f"{PLACE}/me", True),
        (PLACE, True),
        (f"{PLACE}-of-others/you/repo", False),
        ("localhost/rollbox/python:1", False),
        ("docker.io/rollbox/commits/you/repo", False),
    ],
)
def test_only_names_below_the_place_are_anybodys(name: str, foreign: bool) -> None:
    assert is_foreign(PLACE, "me", parse(name)) == foreign
    assert not is_foreign("", "me", parse(name))


def test_an_image_is_built_on_those_whose_own_layers_it_has() -> None:
    layers = {"bare": ("a",), "one": ("a", "b"), "again": ("a", "b"), "two": ("a", "b", "c"), "other": ("a", "c")}
    below = built_on(layers, bare={"bare"})
    assert below == {"bare": (), "one": (), "again": (), "two": ("one", "again"), "other": ()}
