"""A browser, a stage and a `rollbox ui` for each test, and what the browser complained about."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from playwright.async_api import Browser

from controlplane.telemetry import configure_log
from tests.console.stage import Stage, Ui, staged, ui
from tests.support.chromium import chromium


@pytest.fixture(autouse=True, scope="session")
def quiet() -> None:
    """Tests look at pages, not at log lines."""
    configure_log("critical")


@pytest.fixture
async def browser() -> AsyncIterator[Browser]:
    async with chromium() as running:
        yield running


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    with tempfile.TemporaryDirectory(prefix="rb-", dir="/tmp") as folder:
        async with staged(Path(folder)) as running:
            yield running


@pytest.fixture
async def shown(stage: Stage) -> AsyncIterator[Ui]:
    async with ui(stage.url) as running:
        yield running
