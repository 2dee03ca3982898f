"""Values of the wire in words."""

import pytest

from controlplane.model.units import in_words


@pytest.mark.parametrize(
    ("field", "value", "text"),
    [
        ("ttl_ms", 604_800_000, "604800000 (7 d)"),
        ("ttl_ms", 90_000, "90000 (90 s)"),
        ("ttl_ms", 1, "1"),
        ("template.memory_bytes.limit", 4 << 40, "4398046511104 (4Ti)"),
        ("memory_bytes", 0, "0"),
        ("cpu_millicores.limit", 64_000, "64000 (64 cores)"),
        ("count", 1000, "1000"),
    ],
)
def test_the_largest_whole_unit_stands_beside_the_number(field: str, value: int, text: str) -> None:
    assert in_words(field, value) == text
