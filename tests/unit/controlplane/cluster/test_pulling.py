"""How far a pull is, from what engines say."""

from hypothesis import given
from hypothesis import strategies as st

from controlplane.cluster.engine.pulling import MOST_LAYERS, PullMeter


def line(status: str, layer: str = "a", current: int = 0, total: int = 0) -> dict[str, object]:
    return {"status": status, "id": layer, "progressDetail": {"current": current, "total": total}}


def test_layers_are_added_up() -> None:
    meter = PullMeter()
    assert (meter.done_bytes, meter.total_bytes) == (0, None)
    for told in (
        {"status": "Pulling from library/python", "id": "3.12"},
        line("Pulling fs layer"),
        line("Downloading", "a", 10, 100),
        line("Downloading", "b", 50, 50),
        line("Downloading", "a", 5, 100),  # late
        {"status": "Download complete", "id": "b"},
    ):
        meter.take(told)
    assert (meter.done_bytes, meter.total_bytes) == (60, 150)
    meter.take({"status": "Pull complete", "id": "a"})
    assert (meter.done_bytes, meter.total_bytes) == (150, 150)


LINES = st.builds(
    line,
    st.sampled_from(["Downloading", "Extracting", "Pull complete", "Already exists", ""]),
    st.text(max_size=3),
    st.integers(0, 1 << 40),
    st.integers(0, 1 << 40),
)


@given(st.lists(LINES, max_size=50))
def test_it_is_never_more_than_all_and_never_less_than_before(lines: list[dict[str, object]]) -> None:
    meter = PullMeter()
    for told in lines:
        meter.take(told)
        assert 0 <= meter.done_bytes <= (meter.total_bytes or 0)


def test_a_registry_cannot_make_it_large() -> None:
    meter = PullMeter()
    for number in range(2 * MOST_LAYERS):
        meter.take(line("Downloading", str(number), 1, 1))
    assert meter.total_bytes == MOST_LAYERS
