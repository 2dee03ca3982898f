"""Sandboxes as a recipe makes them."""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncIterator
from typing import cast

from rollbox.options import CreateOptions
from rollbox_integrations.tinker_cookbook import RollboxSandbox

IMAGE = os.environ["ROLLBOX_TEST_IMAGE"]
# Where the registry of the others is, so that it is one that answers.
NO_IMAGE = IMAGE.rpartition("/")[0] + "/no-such-image:1"
LABELS = {"rollbox.host": "tinker-cookbook"}


def options(**given: object) -> CreateOptions:
    return cast("CreateOptions", {"memory": "512Mi", "egress": "offline", **given})


@contextlib.asynccontextmanager
async def created(**given: object) -> AsyncIterator[RollboxSandbox]:
    sandbox = await RollboxSandbox.create(IMAGE, options(**given))
    try:
        yield sandbox
    finally:
        await sandbox.cleanup()
