"""Deployments as a program of SWE-ReX's makes them."""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncIterator
from typing import Any

from rollbox_integrations.swe_rex import RollboxDeployment

IMAGE = os.environ["ROLLBOX_TEST_IMAGE"]
# Where the registry of the others is, so that it is one that answers.
NO_IMAGE = IMAGE.rpartition("/")[0] + "/no-such-image:1"
LABELS = {"rollbox.host": "swe-rex"}


def made(**options: Any) -> RollboxDeployment:
    """A deployment that was not started."""
    return RollboxDeployment(**{"image": IMAGE, "memory": "512Mi", "egress": "offline", **options})


@contextlib.asynccontextmanager
async def started(**options: Any) -> AsyncIterator[RollboxDeployment]:
    deployment = made(**options)
    try:
        await deployment.start()
        yield deployment
    finally:
        await deployment.stop()
