"""Who should be alive, and who may have died while being started."""

import contextlib

from controlplane.cluster.engine.roll import Roll


def test_what_ends_while_it_starts_is_judged_at_the_end_of_the_start() -> None:
    roll = Roll()
    with roll.starting("sb-1"):
        roll.doubt("sb-1")
        roll.doubt("sb-stranger")
        assert "sb-1" not in roll
    assert "sb-1" in roll
    assert [roll.take_doubt(one) for one in ("sb-1", "sb-1", "sb-stranger")] == [True, False, False]


def test_a_gap_of_the_stream_casts_doubt_on_all_that_start() -> None:
    roll = Roll()
    with roll.starting("sb-1"):
        roll.doubt_all()
    assert roll.take_doubt("sb-1")


def test_a_start_that_fails_leaves_nothing() -> None:
    roll = Roll()
    with contextlib.suppress(ZeroDivisionError), roll.starting("sb-1"):
        roll.doubt("sb-1")
        raise ZeroDivisionError
    assert roll.alive() == ()
    assert not roll.take_doubt("sb-1")
