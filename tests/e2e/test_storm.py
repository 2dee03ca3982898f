"""Ten minutes in which parts of the node and of the product die at random; nothing is lost, left behind or untold."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.chaos.events import Log
from tests.chaos.judged import judged
from tests.chaos.real import RealGround, RealStorm
from tests.support.images import IMAGE
from tests.support.installed import OWNERS, Installed, own_cluster
from tests.support.release import seen_by

SECONDS = float(os.environ.get("ROLLBOX_CHAOS_SECONDS", "600"))
SEED = int(os.environ.get("ROLLBOX_CHAOS_SEED", "1"))
CALM_WITHIN_S = 300.0


@pytest.mark.soak
@pytest.mark.timeout(5400)
async def test_ten_minutes_of_storm_break_no_invariant(
    stack: Installed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not own_cluster():
        pytest.skip("a given cluster's node is not ours to hit")
    # For the clients, which are programs of their own.
    monkeypatch.setenv("ROLLBOX_CHAOS_IMAGE", IMAGE)
    ground = RealGround(tmp_path, stacks={owner: await seen_by(owner) for owner in OWNERS[:2]})
    log = Log(tmp_path / "storm.events")
    storm = RealStorm(ground, SEED, log)
    try:
        await storm.prepare()
        await storm.rage(SECONDS)
        await storm.calm(CALM_WITHIN_S)
        verdicts, _, _ = await judged(ground, tmp_path, lambda _: None)
    finally:
        for name in [*ground.parts]:
            await ground.kill(name)
        log.close()
        await storm.tidy()
    print({"seed": SEED, "blows": storm.blows, "tried": {one.name: one.tried for one in verdicts}})
    assert {one.name: one.violations for one in verdicts if one.violations} == {}
    assert storm.trouble == []
