"""The start slots on a real Redis answer as those in memory, whatever is asked in whatever order."""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from controlplane.store import Slot, Store
from tests.contract.redis_replicas import ShiftedClock, replicas
from tests.contract.store_factory import starting
from tests.support.redis_server import redis_server
from tests.support.shared_store import SharedMemory

NODES = ("a", "b", "c", "d")
# Most come to one node, so that it is far over its limit now and then; or to two of two, so that both are slow at once.
WEIGHTS = ((7, 1, 1, 1), (1, 1, 1, 1), (1, 1, 0, 0))
KEYS = ("1000/0/0/0/", "2000/0/0/0/zone=b\n\na", "3000/0/0/0/", "4000/0/0/0/", "5000/0/0/0/")
STARTS, STEPS = 40, 300


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with redis_server(Path(tmp_path_factory.mktemp("redis"))) as url:
        yield url


class Ask:
    """Draws steps, and does each in several stores."""

    def __init__(self, stores: list[Store], clock: ShiftedClock, seed: int, per_node: int) -> None:
        self.stores, self.clock, self.per_node = stores, clock, per_node
        self.dice = random.Random(seed)
        self.weights = WEIGHTS[seed % len(WEIGHTS)]
        self.limit = per_node * (2 if 0 in self.weights else self.dice.choice((1, 4, 8)))
        self.key = {f"sb-{number}": self.dice.choice(KEYS) for number in range(STARTS)}

    async def step(self) -> list[Slot]:
        """What each of them answers; nothing where they answer nothing."""
        name = self.dice.choice(list(self.key))
        # Slots lapse, and nodes become slow.
        until_ms = self.clock.now_ms() + self.dice.choice((4_000, 60_000))
        act = self.dice.choices(("take", "place", "free", "wait"), (8, 4, 3, 1))[0]
        if act == "take":
            asked = (name, self.limit, until_ms, self.per_node, self.key[name])
            more = self.dice.random() < 0.5
            return [await store.take_slot(*asked, more=more) for store in self.stores]
        if act == "place":
            placed = (name, self.dice.choices(NODES, self.weights)[0], until_ms, self.per_node, self.key[name])
            for store in self.stores:
                await store.place_slot(*placed)
        elif act == "free":
            for store in self.stores:
                await store.free_slot(name)
        else:
            self.clock.ahead_ms += self.dice.choice((1_000, 5_001))
        return []


@pytest.mark.parametrize("seed", range(12))
async def test_both_answer_alike(url: str, seed: int) -> None:
    clock = ShiftedClock()
    async with replicas(url, 1, clock) as (shared,):
        played = SharedMemory(clock, intact=True).view("one")
        ask = Ask([shared, played], clock, seed, per_node=2 + seed // 3)
        for store in ask.stores:
            for name in ask.key:
                await starting(store, name)
        answers: list[list[Slot]] = [await ask.step() for _ in range(STEPS)]
    assert [two for two in answers if two and two[0] != two[1]] == []
    slots = [two[0] for two in answers if two]
    # Every kind of answer was among them.
    assert {bool(one) for one in slots} == {True, False}
    assert any(one and one.avoid for one in slots)
    assert any(one.last for one in slots)
