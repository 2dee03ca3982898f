"""Which pods are deleted without their kubelet: only those of which no container can have run."""

from typing import Any

import pytest

from controlplane.cluster.kubernetes.pods.never_ran import never_ran

WAITS = {"name": "target", "state": {"waiting": {"reason": "ContainerCreating"}}, "lastState": {}, "restartCount": 0}


def pod(*containers: dict[str, Any], phase: str = "Pending", field: str = "containerStatuses") -> dict[str, Any]:
    return {"metadata": {"name": "sb-1"}, "status": {"phase": phase, field: list(containers)}}


@pytest.mark.parametrize(
    "thing",
    [
        {"metadata": {}},
        pod(),
        pod(WAITS, WAITS),
        pod({**WAITS, "state": {}}),
        pod({**WAITS, "state": {"waiting": {"reason": "ErrImagePull"}}, "image": "a", "imageID": "", "ready": False}),
    ],
)
@pytest.mark.parametrize(
    "reasons", [[], ["Scheduled", "Pulling", "Pulled", "FailedCreatePodSandBox", "Failed", "BackOff"]]
)
def test_nothing_of_it_has_run(thing: dict[str, Any], reasons: list[str]) -> None:
    assert never_ran(thing, [{"reason": reason} for reason in reasons])


@pytest.mark.parametrize("field", ["initContainerStatuses", "containerStatuses", "ephemeralContainerStatuses"])
@pytest.mark.parametrize(
    "more",
    [
        {"state": {"running": {"startedAt": "t"}}},
        {"state": {"terminated": {"exitCode": 0}}},
        {"lastState": {"terminated": {"exitCode": 1}}},
        {"containerID": "containerd://1"},
        {"restartCount": 1},
    ],
)
def test_a_status_that_says_more_than_waiting_is_enough(more: dict[str, Any], field: str) -> None:
    assert not never_ran(pod(WAITS, {**WAITS, **more}, field=field), [])


@pytest.mark.parametrize("phase", ["Running", "Succeeded", "Failed", "Unknown"])
def test_a_phase_after_the_first_is_enough(phase: str) -> None:
    assert not never_ran(pod(WAITS, phase=phase), [])


@pytest.mark.parametrize("reason", ["Created", "Started", "Killing"])
def test_an_event_of_a_container_is_enough_while_the_status_is_old(reason: str) -> None:
    assert not never_ran(pod(WAITS), [{"reason": "Scheduled"}, {"reason": reason}])
