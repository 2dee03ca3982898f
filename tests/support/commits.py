"""Commits in tests: of one name each, and taken off the engine again; a cluster that offers none has to say so."""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import uuid4

import pytest

from rollbox import Client, CommittedImage, Sandbox
from rollbox.errors import InvalidArgument, Unsupported
from tests.support.containers import engine, list_images
from tests.support.product import Kept, keeping
from tests.support.stack import Product
from tests.support.waiting import until

ON_CLUSTER = os.environ.get("ROLLBOX_TEST_PRODUCT") == "cluster"
# For tests that make images: where none are offered they end before they have made anything.
made_where_offered = pytest.mark.usefixtures("commits_are_offered")
# What each installation has said, by its address: None: it makes images.
_refusals: dict[str, Unsupported | None] = {}


@asynccontextmanager
async def repository() -> AsyncIterator[str]:
    """The name of a repository for a test's own images."""
    name = f"test-{uuid4().hex[:12]}"
    try:
        yield name
    finally:
        if not ON_CLUSTER:
            await until(lambda: removed(name))


@pytest.fixture
async def commits_are_offered(stack: Product, client: Client, kept: Kept, request: pytest.FixtureRequest) -> None:
    """Ends a test if its cluster has no part for images; each installation is asked once."""
    if stack.url not in _refusals:
        _refusals[stack.url] = await _refusal(await kept.connect(client, request.module.__name__))
    if (refused := _refusals[stack.url]) is not None:
        check_not_offered(refused)


async def _refusal(sandbox: Sandbox) -> Unsupported | None:
    """Why no sandbox is made an image there: a name that is none is refused where one could be."""
    try:
        await sandbox.commit("NO NAME")
    except InvalidArgument:
        return None
    except Unsupported as refused:
        return refused
    raise AssertionError("such a name was taken")


@pytest.fixture(scope="module")
def sources(stack: Product) -> Iterator[Kept]:
    """The sandbox behind `source`."""
    yield from keeping(stack)


@pytest.fixture
async def source(
    client: Client, commits_are_offered: None, sources: Kept, request: pytest.FixtureRequest
) -> AsyncIterator[Sandbox]:
    """A sandbox of the module's that many images are made of: what a test writes in it is in those of later ones."""
    yield await sources.connect(client, request.module.__name__)
    await sources.check(client)


def check_not_offered(refused: Unsupported) -> None:
    """Ends the test if its cluster has no part for images, and says so."""
    assert ON_CLUSTER, refused
    assert "enabled" in refused.details["value"], refused
    pytest.skip(f"not offered by this cluster, which says so: {refused.detail}")


async def commit(sandbox: Sandbox, name: str, **options: Any) -> CommittedImage:
    """Makes an image; where none are offered, the test ends with that: the refusal names what would offer them."""
    try:
        return await sandbox.commit(name, **options)
    except Unsupported as refused:
        check_not_offered(refused)
    raise AssertionError("not reached")


async def removed(name: str) -> bool:
    """Whether all images of a repository are gone; containers that are being removed keep theirs for a moment."""
    try:
        lines = (await list_images("--format", "{{.Repository}} {{.ID}}")).splitlines()
    except RuntimeError:
        # Podman cannot list while another test removes an image.
        return False
    ids = {line.split()[1] for line in lines if line.split()[0].rpartition("/")[2] == name}
    for one in ids:
        with contextlib.suppress(RuntimeError):
            await engine("rmi", "--force", one)
    return not ids
