"""Fixtures: a bridge on this test's event loop, over a fake gateway with a folder of files and real processes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support import prime_speaking
from tests.support.e2b_speaking import Speaker, bridging
from tests.support.gateway_fake import FakeGateway, serving


@pytest.fixture
async def fake(tmp_path: Path) -> AsyncIterator[FakeGateway]:
    """The gateway; `/` of its sandboxes is a folder of this test."""
    async with serving() as gateway:
        gateway.files.root = tmp_path
        yield gateway


@pytest.fixture
async def e2b(fake: FakeGateway) -> AsyncIterator[Speaker]:
    """Who speaks E2B's protocol to a bridge of that gateway."""
    async with bridging(fake) as speaker:
        yield speaker


@pytest.fixture
async def prime(fake: FakeGateway) -> AsyncIterator[prime_speaking.Speaker]:
    """Who speaks Prime's protocol to a bridge of that gateway."""
    async with prime_speaking.bridging(fake) as speaker:
        yield speaker
