"""Facts in files: kept, added to, and harmless when damaged."""

from pathlib import Path

import pytest

from controlplane.cluster.engine import facts


def test_facts_add_up(tmp_path: Path) -> None:
    path = tmp_path / "sb-1.json"
    assert facts.read(path) == {}
    facts.add(path, {"a": "1"})
    facts.add(path, {"b": "2", "a": "3"})
    assert facts.read(path) == {"a": "3", "b": "2"}
    assert [entry.name for entry in tmp_path.iterdir()] == ["sb-1.json"]


@pytest.mark.parametrize("damaged", [b"", b"{", b"[]", b"\xff"])
def test_a_damaged_file_proves_nothing(tmp_path: Path, damaged: bytes) -> None:
    path = tmp_path / "x.json"
    path.write_bytes(damaged)
    assert facts.read(path) == {}
