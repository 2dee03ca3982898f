"""`vf-validate` over the example: all solutions pass, and tasks that nobody solved do not."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

from on_verifiers.rollouts import IMAGE, PATH
from rollbox import Client

EXAMPLES = Path(__file__).parents[2] / "examples"
WORDS = ("verifiers_humaneval", "--runtime.type", "custom", "--runtime.import-path", PATH, "--runtime.image", IMAGE)


async def test_the_example_is_valid(
    client: Client, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    program = await asyncio.create_subprocess_exec(
        Path(sys.executable).with_name("vf-validate"),
        *WORDS,
        *("--runtime.egress", "offline", "--no-rich", "-c", "4", "-o", str(tmp_path)),
        env={**os.environ, "PYTHONPATH": str(EXAMPLES)},
    )
    assert await program.wait() == 0
    (summary,) = await asyncio.to_thread(lambda: [*tmp_path.rglob("summary.json")])
    told = json.loads(await asyncio.to_thread(summary.read_text))
    assert (told["total"], told["outcomes"]["valid"], told["valid_rate"]) == (20, 20, 1)
    record_property("cases", 20)
