"""Who should be alive, and who may have died while being started."""

import contextlib

from controlplane.cluster.engine.live_sandboxes import LiveSandboxes


def test_what_ends_while_it_starts_is_judged_at_the_end_of_the_start() -> None:
    live = LiveSandboxes()
    with live.starting("sb-1"):
        live.mark_unconfirmed("sb-1")
        live.mark_unconfirmed("sb-stranger")
        assert "sb-1" not in live
    assert "sb-1" in live
    assert [live.take_unconfirmed(one) for one in ("sb-1", "sb-1", "sb-stranger")] == [True, False, False]


def test_a_gap_of_the_stream_casts_doubt_on_all_that_start() -> None:
    live = LiveSandboxes()
    with live.starting("sb-1"):
        live.mark_all_unconfirmed()
    assert live.take_unconfirmed("sb-1")


def test_a_start_that_fails_leaves_nothing() -> None:
    live = LiveSandboxes()
    with contextlib.suppress(ZeroDivisionError), live.starting("sb-1"):
        live.mark_unconfirmed("sb-1")
        raise ZeroDivisionError
    assert live.alive() == ()
    assert not live.take_unconfirmed("sb-1")
