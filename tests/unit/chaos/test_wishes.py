"""Seeds and keys decide what a soak asks for: the same ones ask for the same."""

import random
from pathlib import Path

from tests.chaos.events import Log, read
from tests.chaos.wishes import wish_of


def test_a_wish_follows_from_its_key_alone() -> None:
    assert wish_of("k-1-2") == wish_of("k-1-2")
    wishes = [wish_of(str(random.Random(seed).random())) for seed in range(200)]
    assert {wish.leased for wish in wishes} == {True, False}
    assert len({wish.image for wish in wishes}) == 2
    assert all(wish.options["ttl"] == wish.ttl_s for wish in wishes)


def test_logs_of_many_are_read_in_the_order_of_their_events(tmp_path: Path) -> None:
    first, second = Log(tmp_path / "a.events"), Log(tmp_path / "b.events")
    first.tell("one", id="sb-1")
    second.tell("two", ttl_s=2.5)
    first.tell("three", leased=True)
    first.close()
    second.close()
    events = read(tmp_path)
    assert [event.what for event in events] == ["one", "two", "three"]
    assert (events[0].id, events[1].ttl_s, events[2].leased) == ("sb-1", 2.5, True)
