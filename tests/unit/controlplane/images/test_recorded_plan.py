"""Which recorded copies go: those that nobody is given, and those that are too much of one owner."""

from hypothesis import given
from hypothesis import strategies as st

from controlplane.images import RegistryImage, plan_recorded
from controlplane.images.budget import YOUNG_MS

NOW = 10**12
OLD = NOW - YOUNG_MS


def image(
    *owners: str, used_ms: int = OLD, size: int = 10, offered: bool = False, recorded: bool = True
) -> RegistryImage:
    parts = {f"{owners}{used_ms}{offered}": size, "base": 1}
    return RegistryImage("estargz/a", "d", parts, used_ms, ["s"], recorded, owners, offered)


def goes(limit_bytes: int = 0, *needed: str, **images: RegistryImage) -> list[str]:
    return plan_recorded(images, lambda name, _: ["a sandbox"] if name in needed else [], limit_bytes, NOW)


def test_what_nobody_is_given_goes_unless_it_is_young_or_needed() -> None:
    assert goes(
        0,
        "runs",
        superseded=image("a"),
        earlier=image(),
        runs=image("a"),
        young=image("a", used_ms=OLD + 1),
        offered=image("a", offered=True),
        common=image(recorded=False),
    ) == ["superseded", "earlier"]


def test_of_an_owner_that_has_too_much_the_least_used_go() -> None:
    mine = {f"m{one}": image("a", used_ms=OLD - one, offered=True) for one in range(5)}
    other = {"other": image("b", used_ms=0, offered=True)}
    # Five of 10 and the part that they share.
    assert goes(51, **mine, **other) == []
    assert goes(50, **mine, **other) == ["m4", "m3"]
    assert goes(50, "m4", **mine, **other) == ["m3", "m2"]
    assert goes(0, **mine, **other) == []


def test_what_several_owners_have_goes_only_if_all_of_them_have_too_much() -> None:
    shared = {"shared": image("a", "b", used_ms=0, offered=True)}
    mine = {f"m{one}": image("a", used_ms=OLD - one, offered=True) for one in range(5)}
    others = {f"o{one}": image("b", used_ms=OLD - one, offered=True) for one in range(5)}
    # b has not, so a loses only what is its own.
    assert goes(51, **shared, **mine) == ["m4", "m3", "m2"]
    assert goes(51, **shared, **mine, **others)[0] == "shared"


def test_what_goes_anyway_is_not_too_much() -> None:
    mine = {"superseded": image("a", size=40), "offered": image("a", size=20, offered=True)}
    assert goes(50, **mine) == ["superseded"]


_IMAGES = st.lists(
    st.builds(
        image,
        st.sampled_from("ab"),
        used_ms=st.integers(OLD - 5, OLD + 5),
        size=st.integers(1, 30),
        offered=st.booleans(),
        recorded=st.booleans(),
    ),
    max_size=12,
)


@given(_IMAGES, st.integers(0, 60), st.sets(st.integers(0, 11)))
def test_nothing_goes_that_is_needed_young_or_no_recorded_copy(
    images: list[RegistryImage], limit_bytes: int, needed: set[int]
) -> None:
    named = {str(number): one for number, one in enumerate(images)}
    gone = goes(limit_bytes, *map(str, needed), **named)
    assert len(gone) == len(set(gone))
    for name in gone:
        assert named[name].recorded
        assert named[name].used_ms <= OLD
        assert int(name) not in needed
    for name, one in named.items():
        assert one.offered or not one.recorded or one.used_ms > OLD or int(name) in needed or name in gone
