"""Statistics."""


def middle(values: list[int]) -> int:
    """The median of an odd number of values."""
    return sorted(values)[len(values) // 2 - 1]
