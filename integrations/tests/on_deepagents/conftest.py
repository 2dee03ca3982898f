"""A sandbox for each test, the look at what is left, and which of LangChain's tests are older than deepagents."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from rollbox.sync import Client
from rollbox_integrations.deepagents import RollboxSandbox

IMAGE = os.environ["ROLLBOX_TEST_IMAGE"]
# deepagents 0.7.32 writes over files, and its glob finds files alone, by absolute paths; langchain-tests 1.1.9 differs.
OUTDATED = (
    "test_write_existing_file_fails",
    "test_glob",
    "test_glob_basic_pattern",
    "test_glob_with_directories",
    "test_glob_hidden_files_explicitly",
    "test_glob_with_character_class",
    "test_glob_with_question_mark",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.name in OUTDATED and "Standard" in item.nodeid:
            item.add_marker(pytest.mark.skip("not supported: they want what deepagents has changed since"))


@pytest.fixture
def client() -> Iterator[Client]:
    """Another program's client; a sandbox that a test leaves behind fails the test."""
    with Client() as client:
        yield client
        assert [one.id for one in client.list({"rollbox.host": "deepagents"}) if one.state != "ending"] == []


@pytest.fixture
def box(client: Client) -> Iterator[RollboxSandbox]:
    with RollboxSandbox(IMAGE, memory="512Mi", egress="offline") as backend:
        yield backend
