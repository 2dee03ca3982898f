"""Which difference between records and pods leads to what."""

from datetime import UTC, datetime
from typing import Any

import pytest

from controlplane.cluster.kubernetes.marks import FINALIZER
from controlplane.model import EndCause, Sandbox, SandboxSpec, State
from controlplane.operator.plan import plan

NOW = 1_700_000_000_000
MINUTE = 60_000


def stamp(ago_ms: int) -> str:
    return datetime.fromtimestamp((NOW - ago_ms) / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def pod(
    *, age_ms: int = 10 * MINUTE, deleted_ms: int | None = None, ended_ms: int | None = None, held: bool = True
) -> dict[str, Any]:
    about: dict[str, Any] = {"name": "sb-1", "uid": "u", "creationTimestamp": stamp(age_ms)}
    about["finalizers"] = [FINALIZER] if held else []
    if deleted_ms is not None:
        about["deletionTimestamp"] = stamp(deleted_ms)
    running: dict[str, Any] = {"running": {}}
    ended = {"terminated": {"exitCode": 137, "reason": "OOMKilled", "finishedAt": stamp(ended_ms or 0)}}
    state = running if ended_ms is None else ended
    return {"metadata": about, "status": {"containerStatuses": [{"name": "target", "state": state}]}}


def record(state: State = State.RUNNING, *, ready_ms: int = 10 * MINUTE, ended_ms: int | None = None) -> Sandbox:
    end = None if ended_ms is None else EndCause("deleted", "d", NOW - ended_ms, "alice")
    spec = SandboxSpec(image="a")
    return Sandbox("sb-1", "alice", spec, 1, NOW, "f", state=state, ready_at_ms=NOW - ready_ms, end=end)


ROWS: dict[str, tuple[Sandbox | None, dict[str, Any] | None, list[str], list[str]]] = {
    "all is well": (record(), pod(), [], []),
    "it just starts": (record(State.STARTING), None, [], []),
    "it just got ready": (record(ready_ms=MINUTE // 2), None, [], []),
    "its pod is gone": (record(), None, ["sandbox_lost"], []),
    "it ends": (record(State.ENDING, ended_ms=MINUTE // 2), pod(deleted_ms=MINUTE // 2), [], []),
    "its end is stuck": (record(State.ENDING, ended_ms=2 * MINUTE), pod(deleted_ms=2 * MINUTE), [], ["waited"]),
    "its pod was not removed": (record(State.ENDED, ended_ms=6 * MINUTE), pod(), [], ["not removed"]),
    "nobody knows it": (None, pod(), [], ["no record"]),
    "nobody knows it yet": (None, pod(age_ms=MINUTE), [], []),
    "nobody knows it, and it is stuck": (None, pod(age_ms=MINUTE * 2, deleted_ms=2 * MINUTE), [], ["waited"]),
    "its death was just seen": (record(), pod(ended_ms=1_000), [], []),
    "its death was missed": (record(), pod(ended_ms=2 * MINUTE), ["oom_killed"], []),
    "its deletion was missed": (record(), pod(deleted_ms=2 * MINUTE), ["sandbox_lost"], []),
    "its node does not stop it": (
        record(State.ENDING, ended_ms=MINUTE * 9),
        pod(deleted_ms=MINUTE * 9, held=False),
        [],
        [],
    ),
    "its node does not stop what nobody knows": (None, pod(deleted_ms=9 * MINUTE, held=False), [], []),
    "a start that died unseen": (record(State.STARTING), pod(ended_ms=2 * MINUTE), ["oom_killed"], []),
}


@pytest.mark.parametrize(("known", "seen", "deaths", "words"), ROWS.values(), ids=ROWS.keys())
def test_a_difference_is_repaired(
    known: Sandbox | None, seen: dict[str, Any] | None, deaths: list[str], words: list[str]
) -> None:
    made = plan({known.id: known} if known else {}, [seen] if seen else [], NOW)
    assert [one.cause for one in made.deaths] == deaths
    assert len(made.removals) == len(words)
    assert all(word in one.why for word, one in zip(words, made.removals, strict=True))


def test_a_pod_that_ran_on_is_not_touched_because_one_container_ended() -> None:
    half = pod(ended_ms=2 * MINUTE)
    half["status"]["containerStatuses"].append({"name": "sidecar", "state": {"running": {}}})
    made = plan({"sb-1": record()}, [half], NOW)
    assert (made.deaths, made.removals) == ([], [])
