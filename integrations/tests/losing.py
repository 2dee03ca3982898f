"""A sandbox that is taken away behind the platform's back, as by a node that fails."""

from __future__ import annotations

import os
import shlex
import subprocess
import time

from rollbox.sync import Client


def lose(sandbox_id: str) -> None:
    """Take it away by the line that the run of the suite gives, and wait until the platform has told that it ended."""
    line = os.environ["ROLLBOX_TEST_LOSE"].format(id=sandbox_id)
    subprocess.run(shlex.split(line), check=True, stdout=subprocess.DEVNULL)
    with Client() as client:
        while client.get(sandbox_id).state != "ended":
            time.sleep(0.5)
