"""Sizes and cores as people write them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollbox.errors import InvalidArgument
from rollbox.quantity import Wanted, cpu_range, memory_range, parse_cpu, parse_memory


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [
        ("256Mi", 256 * 2**20),
        ("2Gi", 2 * 2**30),
        ("1.5Gi", 3 * 2**29),
        ("500M", 500 * 10**6),
        ("10k", 10**4),
        ("4096", 4096),
        (" 1GiB ", 2**30),
        (1, 1),
    ],
)
def test_sizes(text: int | str, size_bytes: int) -> None:
    assert parse_memory(text) == size_bytes


@pytest.mark.parametrize(
    "bad", ["", "Mi", "-1Gi", "1e3", "2 Gb", "2gi", "1.5", "0", "0Gi", "٣Gi", 0, -1, True, 1.5, None, []]
)
def test_nonsense_sizes_are_refused_by_name(bad: object) -> None:
    with pytest.raises(InvalidArgument, match="memory"):
        parse_memory(bad)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "bad", ["", "two", "-1", "0", "1e400", 0, -0.5, float("nan"), float("inf"), True, None, 0.0001]
)
def test_nonsense_cores_are_refused_by_name(bad: object) -> None:
    with pytest.raises(InvalidArgument, match="cpu"):
        parse_cpu(bad)  # type: ignore[arg-type]


@given(st.integers(1, 2**50), st.sampled_from(["", "k", "M", "G", "Ki", "Mi", "Gi"]))
def test_a_size_grows_with_its_unit(amount: int, unit: str) -> None:
    assert parse_memory(f"{amount}{unit}") >= amount
    assert parse_memory(parse_memory(f"{amount}{unit}")) == parse_memory(f"{amount}{unit}")


@given(st.integers(1, 10**6))
def test_millicores_are_the_same_in_all_spellings(millicores: int) -> None:
    assert parse_cpu(f"{millicores}m") == millicores
    assert parse_cpu(millicores / 1000) == millicores


@given(st.text(max_size=20))
def test_any_text_is_a_size_or_an_invalid_argument(text: str) -> None:
    try:
        size_bytes = parse_memory(text)
    except InvalidArgument as error:
        detail = error.detail
    else:
        detail = repr(text) if size_bytes >= 1 else ""
    assert repr(text) in detail


@given(st.integers(1, 2**40), st.integers(1, 2**40))
def test_a_request_is_never_above_its_limit(one: int, other: int) -> None:
    low, high = sorted((one, other))
    assert memory_range((low, high)) == Wanted(low, high)
    if low != high:
        with pytest.raises(InvalidArgument, match="more than its limit"):
            memory_range((high, low))


def test_a_single_value_is_the_limit_and_the_installation_says_the_request() -> None:
    assert cpu_range(2) == Wanted(None, 2000)
    assert memory_range("2Gi") == Wanted(None, 2 * 2**30)
    assert cpu_range("50m").to_json() == {"limit": 50}
    assert memory_range(("1Mi", "2Mi")).to_json() == {"request": 1 << 20, "limit": 2 << 20}


def test_three_parts_are_refused() -> None:
    with pytest.raises(InvalidArgument, match="3 parts"):
        cpu_range((1, 2, 3))  # type: ignore[arg-type]
