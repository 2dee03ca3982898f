"""The order of conversions: what somebody waits for first, fair between owners, bounded."""

from collections import Counter
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from controlplane.lifecycle.images.conversion_order import TURNS, ConversionOrder

OWNERS = st.sampled_from("abcde")


@dataclass(eq=False)
class Want:
    key: str
    owner: str
    awaited: bool


@dataclass
class Played:
    """An order that is fed, and what was seen of it."""

    order: ConversionOrder[Want] = field(default_factory=lambda: ConversionOrder(lambda one: one.awaited, most=8))
    made: int = 0

    def put(self, owner: str, *, awaited: bool) -> list[Want]:
        self.made += 1
        one = Want(f"image{self.made}", owner, awaited)
        return [*self.order.put(one.key, one, [owner])]


def test_one_owner_with_thousands_of_images_holds_nobody_up() -> None:
    played = Played(ConversionOrder(lambda one: one.awaited))
    for _ in range(5_000):
        played.put("greedy", awaited=False)
    for _ in range(3):
        assert [one.owner for one in played.put("modest", awaited=False)] == ["greedy"]
    first = [played.order.take() for _ in range(7)]
    assert Counter(one.owner for one in first if one) == {"greedy": 4, "modest": 3}


def test_what_somebody_waits_for_is_first_and_every_fourth_turn_is_for_the_others() -> None:
    played = Played()
    for _ in range(8):
        played.put("a", awaited=True)
        played.put("b", awaited=False)
    taken = [one.awaited for _ in range(8) if (one := played.order.take())]
    assert taken == [True, True, True, False] * 2


def test_an_image_that_several_want_comes_with_the_first_of_them() -> None:
    played = Played()
    for _ in range(6):
        played.put("a", awaited=False)
    played.order.join("image6", "b")
    taken = [one.key for _ in range(2) if (one := played.order.take())]
    assert taken == ["image1", "image6"]


@settings(deadline=None)
@given(st.lists(st.one_of(st.none(), st.tuples(OWNERS, st.booleans()), st.integers(0, 20)), max_size=120))
def test_everybody_gets_a_turn_and_nothing_is_lost(steps: list[tuple[str, bool] | int | None]) -> None:
    played = Played()
    order, waiting, gone = played.order, dict[str, Want](), Counter[str]()
    # Of each owner and kind that waits: turns of its kind that went to others since it came, or had its last one.
    passed: dict[tuple[str, bool], Counter[str]] = {}
    for step in steps:
        if isinstance(step, tuple):
            left = played.put(step[0], awaited=step[1])
            for one in order.all():
                waiting.setdefault(one.key, one)
            for one in left:
                waiting.pop(one.key, None)
                gone[one.key] += 1
        elif isinstance(step, int):
            # Somebody comes, or leaves: what was waited for is one of the others, or the other way round.
            for one in order.all()[step : step + 1]:
                one.awaited = not one.awaited
                passed.clear()
        elif (taken := order.take()) is not None:
            assert waiting.pop(taken.key) is taken
            gone[taken.key] += 1
            kinds = {(one.owner, one.awaited) for one in waiting.values()}
            for owner, awaited in kinds:
                if awaited is taken.awaited and owner != taken.owner:
                    passed.setdefault((owner, awaited), Counter())[taken.owner] += 1
            passed = {key: held for key, held in passed.items() if key in kinds and key[0] != taken.owner}
            # By the same owner nobody is overtaken more than twice: by its last turn before, and by one after.
            assert all(times <= 2 for held in passed.values() for times in held.values()), passed
        assert {one.key for one in order.all()} == set(waiting)
        assert len(waiting) <= 16
    assert all(times == 1 for times in gone.values())
    assert len(gone) + len(waiting) == played.made
    assert TURNS > 1
