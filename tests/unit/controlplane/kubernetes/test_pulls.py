"""Which image a node pulls, by its kubelet's events."""

from typing import Any

import pytest

from controlplane.cluster.kubernetes.pods.pulls import pulling
from controlplane.cluster.protocol import Pulling

IMAGE = "registry.internal/a:1"
AT_MS = 1_790_000_000_000


def event(reason: str, at: str, image: str = IMAGE, container: str = "target") -> dict[str, Any]:
    message = {"Pulling": f'Pulling image "{image}"', "Pulled": f'Successfully pulled image "{image}" in 3s'}
    about = {"fieldPath": f"spec.containers{{{container}}}"}
    return {"reason": reason, "message": message.get(reason, reason), "lastTimestamp": at, "involvedObject": about}


BEGUN = event("Pulling", "2026-09-21T14:13:20Z")
LATER = "2026-09-21T14:13:30Z"


def test_a_pull_that_nothing_has_ended_goes_on() -> None:
    scheduled = {"reason": "Scheduled", "message": "to n1", "eventTime": "2026-09-21T14:13:19.5Z"}
    of_sidecar = [event(reason, "2026-09-21T14:13:19Z", container="sidecar") for reason in ("Pulling", "Pulled")]
    assert pulling("n1", [scheduled, *of_sidecar, BEGUN]) == Pulling("n1", IMAGE, AT_MS)
    # Another container's later words say nothing of it.
    assert pulling("n1", [BEGUN, event("Started", LATER, container="sidecar")]) == Pulling("n1", IMAGE, AT_MS)


@pytest.mark.parametrize("reason", ["Pulled", "Failed", "BackOff", "Created", "Started"])
@pytest.mark.parametrize("at", [BEGUN["lastTimestamp"], LATER])
def test_one_that_is_over_does_not(reason: str, at: str) -> None:
    assert pulling("n1", [BEGUN, event(reason, at)]) is None


def test_one_that_was_begun_again_does() -> None:
    failed = event("Failed", "2026-09-21T14:13:10Z")
    assert pulling("n1", [BEGUN, failed]) == Pulling("n1", IMAGE, AT_MS)


@pytest.mark.parametrize(
    "events",
    [
        [],
        [{}],
        [{"reason": "Pulling", "message": None, "lastTimestamp": LATER}],
        [{"reason": "Pulling", "message": f'Pulling image "{IMAGE}"', "lastTimestamp": "yesterday"}],
    ],
)
def test_what_cannot_be_read_says_nothing(events: list[dict[str, Any]]) -> None:
    assert pulling("n1", events) is None
