"""Commits in tests: of one name each, and taken off the engine again; a cluster that offers none has to say so."""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import uuid4

import pytest

from rollbox import CommittedImage, Sandbox
from rollbox.errors import Unsupported
from tests.support.containers import engine
from tests.support.waiting import until

ON_CLUSTER = os.environ.get("ROLLBOX_TEST_PRODUCT") == "cluster"


@asynccontextmanager
async def repository() -> AsyncIterator[str]:
    """The name of a repository for a test's own images."""
    name = f"test-{uuid4().hex[:12]}"
    try:
        yield name
    finally:
        if not ON_CLUSTER:
            await until(lambda: removed(name))


async def commit(sandbox: Sandbox, name: str, **options: Any) -> CommittedImage:
    """Makes an image; where none are offered, the test ends with that: the refusal names what would offer them."""
    try:
        return await sandbox.commit(name, **options)
    except Unsupported as refused:
        check_not_offered(refused)
    raise AssertionError("not reached")


def check_not_offered(refused: Unsupported) -> None:
    """Ends the test if its cluster has no part for images, and says so."""
    assert ON_CLUSTER, refused
    assert "enabled" in refused.details["value"], refused
    pytest.skip(f"not offered by this cluster, which says so: {refused.detail}")


async def removed(name: str) -> bool:
    """Whether all images of a repository are gone; containers that are being removed keep theirs for a moment."""
    try:
        lines = (await engine("images", "--format", "{{.Repository}} {{.ID}}")).splitlines()
    except RuntimeError:
        # Podman cannot list while another test removes an image.
        return False
    ids = {line.split()[1] for line in lines if line.split()[0].rpartition("/")[2] == name}
    for one in ids:
        with contextlib.suppress(RuntimeError):
            await engine("rmi", "--force", one)
    return not ids
