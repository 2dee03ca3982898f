"""HumanEval through a resources server: authors' answers pass, no answer does not, and a lost sandbox is masked."""

from __future__ import annotations

from collections.abc import Callable

import nemo_gym_humaneval
import pytest
from fastapi.testclient import TestClient

from on_nemo_gym.sandboxes import IMAGE, NO_IMAGE
from rollbox import Client

PROBLEMS = 20


@pytest.mark.parametrize("solved", [True, False])
def test_answers_are_rewarded(record_property: Callable[[str, object], None], solved: bool) -> None:
    with TestClient(nemo_gym_humaneval.server(IMAGE, egress="offline").setup_webserver()) as agent:
        sent = nemo_gym_humaneval.requests(PROBLEMS, solved=solved)
        answers = [agent.post("/verify", json=one).json() for one in sent]
    assert [one["reward"] for one in answers] == [float(solved)] * PROBLEMS
    assert {(one["mask_sample"], one["failure_kind"]) for one in answers} == {(False, None)}
    record_property("cases", PROBLEMS)


def test_a_reward_without_a_sandbox_is_masked(client: Client) -> None:
    with TestClient(nemo_gym_humaneval.server(NO_IMAGE).setup_webserver()) as agent:
        (one,) = nemo_gym_humaneval.requests(1, solved=True)
        answer = agent.post("/verify", json=one).json()
    assert (answer["reward"], answer["mask_sample"]) == (0.0, True)
    assert answer["failure_kind"] == "rollbox:image_not_found"
    assert "image_not_found (caller)" in answer["failure_reason"]
