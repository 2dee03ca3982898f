"""The look at what is left, and an image of an environment as `openenv build` lays it out."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import fastapi
import pytest

from rollbox.sync import Client

IMAGE = os.environ["ROLLBOX_TEST_IMAGE"]
ECHO = Path(__file__).parent / "echo"
# The packages of this environment, whose Python is that of the image: no registry is asked.
DOCKERFILE = f"""FROM {IMAGE}
COPY site /site
COPY env /app/env
RUN ln -sf "$(command -v python3)" /usr/local/bin/python
ENV PYTHONPATH=/site
"""


@pytest.fixture
def client() -> Iterator[Client]:
    """Another program's client; a sandbox that a test leaves behind fails the test."""
    with Client() as client:
        yield client
        left = [one.id for one in client.list({"rollbox.host": "openenv"}) if one.state != "ending"]
        assert left == []


@pytest.fixture(scope="session")
def echo_image(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The image of the environment in `echo`."""
    folder = tmp_path_factory.mktemp("image")
    packages = Path(fastapi.__file__).parents[1]
    shutil.copytree(packages, folder / "site", ignore=shutil.ignore_patterns("__pycache__", "*.pth", "tests"))
    shutil.copytree(ECHO, folder / "env", ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "Dockerfile").write_text(DOCKERFILE)
    with Client() as client:
        return client.build(folder)
