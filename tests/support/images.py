"""Which image the tests, the benchmarks and the demo run."""

from __future__ import annotations

import os
from pathlib import Path

BUILD = Path(__file__).parent.parent.parent / "build"
REGISTRY = os.environ.get("ROLLBOX_REGISTRY", "localhost:5000/rollbox")
# What `make images` has pushed last, for Helm: by content, since a node keeps what it once pulled by a version's name.
CHART_VALUES = BUILD / "images.yaml"
NOT_PUSHED = "not-pushed-yet"


def pushed(name: str) -> str:
    """The image of this name that `make images` has pushed last; while there is none, a name that says so."""
    record = BUILD / "images" / f"{name}.image"
    return record.read_text().strip() if record.is_file() else f"{REGISTRY}/{name}:{NOT_PUSHED}"


ON_ENGINE = "localhost/rollbox/python:1"
ON_CLUSTER = os.environ.get("ROLLBOX_TEST_IMAGE") or pushed("python")
# Of the product that this run of the tests is against.
IMAGE = ON_CLUSTER if os.environ.get("ROLLBOX_TEST_PRODUCT") == "cluster" else ON_ENGINE
