"""A sandbox for each test, and the look at what is left."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rollbox.sync import Client

WITHOUT_TORCH = str(Path(__file__).parent / "without_torch")
sys.path.insert(0, WITHOUT_TORCH)
IMAGE = os.environ["ROLLBOX_TEST_IMAGE"]


def given(**options: Any) -> dict[str, Any]:
    """Arguments of a backend."""
    return {"image": IMAGE, "mem_limit": "512m", "timeout": 60, "options": {"egress": "offline", **options}}


@pytest.fixture
def client() -> Iterator[Client]:
    """Another program's client; a sandbox that a test leaves behind fails the test."""
    with Client() as client:
        yield client
        assert [one.id for one in client.list({"rollbox.host": "open-instruct"}) if one.state != "ending"] == []
