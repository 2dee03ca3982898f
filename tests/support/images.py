"""Which image the tests, the benchmarks and the demo run."""

from __future__ import annotations

import os
import subprocess
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
AGAINST_CLUSTER = os.environ.get("ROLLBOX_TEST_PRODUCT") == "cluster"
IMAGE = ON_CLUSTER if AGAINST_CLUSTER else ON_ENGINE


def frameworks_image(*, on_cluster: bool = AGAINST_CLUSTER) -> str:
    """The image with frameworks, kernels and plotting, which is made if there is none."""
    build = [str(Path(__file__).parent / "frameworks/build.sh"), *([REGISTRY] if on_cluster else [])]
    return subprocess.run(build, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


def runtime_image(name: str) -> str:
    """A runtime image where the tests run; on an engine it is built if it is not there."""
    if AGAINST_CLUSTER:
        return pushed(name)
    subprocess.run([BUILD.parent / "images" / "runtimes" / name / "build.sh"], check=True)
    return f"localhost/rollbox/{name}:1"
