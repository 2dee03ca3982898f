"""The machine's clock made steady: it follows small corrections at once, and does not jump with large ones."""

from dataclasses import dataclass

import pytest

from controlplane.clock import FOLLOWED_MS, SLEWED, SystemClock

HOUR_MS = 3_600_000


@dataclass
class Machine:
    """A wall clock that is set now and then, and time that passes."""

    wall_ms: int = 1_800_000_000_000
    steady_ms: int = 12_345

    def clock(self) -> SystemClock:
        return SystemClock(lambda: self.wall_ms * 1_000_000, lambda: self.steady_ms * 1_000_000)

    def passes(self, ms: int) -> None:
        self.wall_ms += ms
        self.steady_ms += ms


def test_as_a_rule_it_is_the_wall_clock() -> None:
    machine = Machine()
    clock = machine.clock()
    for _ in range(100):
        assert clock.now_ms() == machine.wall_ms
        machine.passes(777)


@pytest.mark.parametrize("by_ms", [FOLLOWED_MS, 1, -1, -FOLLOWED_MS])
def test_a_small_correction_is_followed_but_never_back(by_ms: int) -> None:
    machine = Machine()
    clock = machine.clock()
    before = clock.now_ms()
    machine.wall_ms += by_ms
    assert clock.now_ms() == max(before, machine.wall_ms)
    machine.passes(2 * FOLLOWED_MS)
    assert clock.now_ms() == machine.wall_ms


@pytest.mark.parametrize("by_ms", [24 * HOUR_MS, -24 * HOUR_MS])
def test_a_life_of_an_hour_is_about_an_hour_whatever_is_set(by_ms: int) -> None:
    machine = Machine()
    clock = machine.clock()
    before = clock.now_ms()
    machine.wall_ms += by_ms
    last = before
    for _ in range(3600):
        machine.passes(1000)
        assert clock.now_ms() > last
        last = clock.now_ms()
    assert abs((last - before) - HOUR_MS) <= HOUR_MS // SLEWED


def test_it_agrees_again_in_the_end() -> None:
    machine = Machine()
    clock = machine.clock()
    machine.wall_ms += 600_000
    for _ in range(6000 + 1):
        machine.passes(1000)
        clock.now_ms()
    assert clock.now_ms() == machine.wall_ms
