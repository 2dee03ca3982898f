"""Ids of checkpoints: they say all that is to be known of one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.images import Checkpoint, parse, target

PLACE = "localhost/rollbox/commits"
SANDBOXES = st.from_regex(r"sb-[0-9a-z]{16}", fullmatch=True)
OWNERS = st.text(min_size=1, max_size=60)


@given(SANDBOXES, st.integers(0, 1 << 40), st.integers(0, 20), OWNERS)
def test_an_id_says_of_what_it_is_how_deep_and_until_when(
    sandbox_id: str, expires_at_ms: int, depth: int, owner: str
) -> None:
    one = None
    for _ in range(depth + 1):
        one = Checkpoint.new(sandbox_id, one, expires_at_ms)
    assert one is not None
    assert (one.sandbox_id, one.depth) == (sandbox_id, depth + 1)
    assert 0 <= one.expires_at_ms - expires_at_ms < 1000
    assert Checkpoint.read(one.id) == one
    name = parse(one.name(PLACE, owner))
    assert Checkpoint.of(PLACE, name) == Checkpoint.of(PLACE, name.at("sha256:" + 64 * "0")) == one


def test_no_two_are_the_same() -> None:
    assert Checkpoint.new("sb-1", None, 0).id != Checkpoint.new("sb-1", None, 0).id


@given(st.text())
def test_nothing_else_is_an_id(text: str) -> None:
    assert Checkpoint.read(text) is None


@pytest.mark.parametrize("name", ["python:3.12", f"{PLACE}/me/repo:cp-a-1-1-abcdefgh", f"{PLACE}/me/checkpoints:v1"])
def test_other_images_are_none(name: str) -> None:
    assert Checkpoint.of(PLACE, parse(name)) is None
    assert Checkpoint.of("", parse(f"{PLACE}/me/checkpoints:cp-a-1-1-abcdefgh")) is None


def test_their_name_is_nobody_elses() -> None:
    with pytest.raises(ValueError, match="taken"):
        target(PLACE, "me", "checkpoints:v1")
    assert target(PLACE, "me", "checkpoints/of-mine:v1")


def test_there_are_not_too_many_below_each_other() -> None:
    with pytest.raises(ValueError, match="checkpoints"):
        Checkpoint.new("sb-1", Checkpoint("cp", "sb-1", 9_999, 0), 0)
