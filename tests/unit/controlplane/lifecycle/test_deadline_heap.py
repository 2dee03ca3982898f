"""Deadlines by name come in their order, whatever the order in which they were set."""

from hypothesis import given
from hypothesis import strategies as st

from controlplane.lifecycle.deadlines import Deadlines

# Which name gets which deadline; None: none any more.
STEPS = st.lists(st.tuples(st.sampled_from("abcde"), st.none() | st.integers(0, 50)), max_size=40)


@given(STEPS, st.integers(0, 50))
def test_what_is_due_comes_once_and_the_earliest_first(steps: list[tuple[str, int | None]], now_ms: int) -> None:
    deadlines, known = Deadlines(), dict[str, int]()
    for name, at_ms in steps:
        if at_ms is None:
            deadlines.discard(name)
            known.pop(name, None)
        else:
            deadlines.put(name, at_ms)
            known[name] = at_ms
    if known:
        assert deadlines.next_ms is not None
        assert deadlines.next_ms <= min(known.values())
    assert [*deadlines.due(now_ms)] == [
        name for at_ms, name in sorted((at, name) for name, at in known.items() if at <= now_ms)
    ]
    assert [*deadlines.due(100)] == [
        name for at_ms, name in sorted((at, name) for name, at in known.items() if at > now_ms)
    ]
    assert deadlines.next_ms is None
