"""The plan of removals: what it never removes, in which order it removes, and when it stops."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.images import Budget, StoredImage, plan_removal

NOW = 10_000_000
OLD = NOW - 3_000_000
BUDGET = Budget(100, 80)


def entry(digest: str, last_used_ms: int = OLD, named_by: Sequence[str] = (), **parts: int) -> StoredImage:
    return StoredImage(digest, parts or {digest: 50}, last_used_ms, named_by)


def removed(*entries: StoredImage, budget: Budget = BUDGET) -> list[str]:
    return [one.digest for one in plan_removal(entries, budget, NOW).removals]


def test_nothing_goes_within_the_budget() -> None:
    assert removed(entry("a"), entry("b")) == []


def test_what_was_not_used_for_the_longest_time_goes_first_and_only_as_much_as_has_to() -> None:
    entries = [entry("a", OLD + 3), entry("b", OLD + 1), entry("c", OLD + 2), entry("d", OLD)]
    assert removed(*entries) == ["d", "b", "c"]
    assert removed(*entries[:3], budget=Budget(140, 100)) == ["b"]


def test_what_is_named_or_young_stays() -> None:
    named = entry("a", named_by=["pool swe"])
    young = entry("b", NOW - BUDGET.young_ms + 1)
    found = plan_removal([named, young, entry("c", NOW - BUDGET.young_ms)], BUDGET, NOW)
    assert [one.digest for one in found.removals] == ["c"]
    assert (found.total_bytes, found.left_bytes, found.needed_bytes) == (150, 100, 100)


def test_layers_that_images_share_count_once() -> None:
    shared = [StoredImage(name, {"base": 90, name: 1}, OLD) for name in "abcde"]
    assert removed(*shared) == []
    found = plan_removal([*shared, StoredImage("f", {"base": 90, "f": 10}, OLD + 1)], BUDGET, NOW)
    # Each frees one byte but the last one of the layer's images, so all have to go.
    assert (found.total_bytes, found.left_bytes) == (105, 0)
    assert [one.freed_bytes for one in found.removals] == [1, 1, 1, 1, 1, 100]


def test_what_would_free_nothing_stays() -> None:
    assert removed(entry("a", named_by=["pool"], base=150), entry("b", base=150), entry("c", base=150, own=1)) == ["c"]


def test_one_image_twice_is_a_mistake_of_the_caller() -> None:
    with pytest.raises(ValueError, match="twice"):
        plan_removal([entry("a"), entry("a")], BUDGET, NOW)


SIZES = {f"layer {number}": 7 * number for number in range(12)}
ENTRIES = st.lists(
    st.builds(
        StoredImage,
        digest=st.integers(0, 10_000).map(str),
        parts=st.sets(st.sampled_from(sorted(SIZES)), min_size=1).map(lambda names: {one: SIZES[one] for one in names}),
        last_used_ms=st.integers(NOW - 4_000_000, NOW),
        named_by=st.sampled_from([(), ("sandbox sb-1",)]),
    ),
    unique_by=lambda one: one.digest,
    max_size=20,
)


@given(ENTRIES, st.integers(0, 400), st.integers(0, 100))
def test_whatever_is_there(entries: list[StoredImage], limit: int, low: int) -> None:
    budget = Budget(limit, limit * low // 100)
    found = plan_removal(entries, budget, NOW)
    by_digest = {one.digest: one for one in entries}
    gone = {one.digest for one in found.removals}
    left = [one for one in entries if one.digest not in gone]

    assert len(gone) == len(found.removals)
    # The count is the truth of what is left.
    assert found.total_bytes == stored(entries)
    assert found.left_bytes == stored(left) == found.total_bytes - sum(one.freed_bytes for one in found.removals)
    stays = [one for one in entries if one.named_by or one.last_used_ms + budget.young_ms > NOW]
    assert found.needed_bytes == stored(stays)
    assert not gone & {one.digest for one in stays}
    if found.total_bytes <= limit:
        assert not gone
        return
    # It stops as soon as it is at the mark, and before that only where nothing is left that would free anything.
    if found.removals:
        assert found.left_bytes + found.removals[-1].freed_bytes > budget.low_bytes
    needed = {part for one in stays for part in one.parts}
    useful = [one for one in left if one not in stays and not one.parts.keys() <= needed]
    assert found.left_bytes <= budget.low_bytes or not useful
    # None that stays though it could go was used before one that goes.
    order = [(by_digest[one.digest].last_used_ms, one.digest) for one in found.removals]
    assert order == sorted(order)
    assert all(order[-1] < (one.last_used_ms, one.digest) for one in useful if order)


def stored(entries: Sequence[StoredImage]) -> int:
    return sum(SIZES[part] for part in {part for one in entries for part in one.parts})


def test_twenty_thousand_images() -> None:
    # Sixteen of a repository share nine layers of ten.
    entries = [
        StoredImage(
            f"image {number}",
            {**{f"base {number // 16} {layer}": 1 << 20 for layer in range(9)}, f"own {number}": 1 << 20},
            OLD + number % 977,
            ["pool"] if number % 100 == 0 else (),
        )
        for number in range(20_000)
    ]
    total = stored_sizes(entries)
    found = plan_removal(entries, Budget.of(total // 2), NOW)
    assert found.total_bytes == total
    assert found.left_bytes <= total // 2 * 80 // 100
    assert not {one.digest for one in found.removals} & {one.digest for one in entries if one.named_by}


def stored_sizes(entries: Sequence[StoredImage]) -> int:
    return len({part for one in entries for part in one.parts}) << 20
