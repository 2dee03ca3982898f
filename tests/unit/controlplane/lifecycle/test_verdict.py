"""Never or later: what a refusal for want of room says."""

import pytest

from controlplane.errors import Problem
from controlplane.lifecycle.waiting.gates import quota
from controlplane.lifecycle.waiting.told import RETRY_MS, Position
from controlplane.model import RESOURCES, Quota, Range, Sandbox, SandboxSpec
from controlplane.store import Full

SPEC = SandboxSpec(
    image="a", cpu_millicores=Range(request=2000, limit=4000), memory_bytes=Range(request=1 << 30, limit=1 << 30), gpu=2
)
WISH = Sandbox("sb-1", "alice", SPEC, 0, 1, "f")


@pytest.mark.parametrize(
    ("limits", "resource", "words"),
    [
        (Quota(cpu_millicores=1999), "cpu_millicores", "this needs 2 cores, and the quota of alice is 1.999 cores"),
        (Quota(memory_bytes=512 << 20), "memory_bytes", "needs 1 GiB of memory, and the quota of alice is 512 MiB"),
        (Quota(sandboxes=9, gpu=1), "gpu", "this needs 2 GPUs, and the quota of alice is 1 GPU:"),
    ],
)
def test_what_alone_is_more_than_the_quota_is_refused_for_good(limits: Quota, resource: str, words: str) -> None:
    with pytest.raises(Problem, match="quota_exceeded") as caught:
        quota.refuse_for_good("alice", quota.needs(SPEC), limits)
    assert words in caught.value.detail
    assert caught.value.details["resource"] == resource
    assert caught.value.details["knob"] == f"rollbox quota set alice {quota.OPTIONS[resource]} N"
    assert caught.value.details["for_good"] == "true"


def test_what_fits_an_empty_quota_is_not_refused_for_good() -> None:
    quota.refuse_for_good("alice", quota.needs(SPEC), Quota(1, 2000, 1 << 30, 2, 1))
    quota.refuse_for_good("alice", quota.needs(SPEC), Quota())


def test_every_field_of_a_quota_has_its_knob() -> None:
    assert set(quota.OPTIONS) == set(RESOURCES)


def test_a_refusal_after_a_wait_tells_the_place_and_what_would_help() -> None:
    told = quota.waited_out(WISH, Full(10, 11, "cpu_millicores"), Position("alice", 3, 900, 4_000), 120_000)
    assert (told.code, told.retry_after_ms) == ("quota_exceeded", 4_000)
    assert "alice uses 0.01 cores of 0.011 cores, and this needs 2 cores" in told.detail
    assert "it was number 3 of 900 of alice that waited for quota" in told.detail
    facts = {"position": "3", "waiting": "900", "waited_ms": "120000", "estimate_ms": "4000", "for_good": "false"}
    assert facts.items() <= told.details.items()


@pytest.mark.parametrize(
    ("full", "words"),
    [
        (Full(1, 1, "sandboxes"), "alice uses 1 sandbox of 1 sandbox, and this needs 1 sandbox; "),
        (Full(1000, 3500, "cpu_millicores"), "alice uses 1 core of 3.5 cores, and this needs 2 cores; "),
        (
            Full(3 << 29, 2 << 30, "memory_bytes"),
            "alice uses 1.5 GiB of memory of 2 GiB of memory, ",
        ),
        (Full(1, 2, "gpu"), "alice uses 1 GPU of 2 GPUs, and this needs 2 GPUs; "),
        (Full(8, 8, "starting"), "alice has 8 of 8 starts in flight; "),
    ],
)
def test_a_refusal_reads_well_for_every_resource_and_says_what_helps_against_it(full: Full, words: str) -> None:
    told = quota.waited_out(WISH, full, Position("alice", 1, 1), 10)
    assert told.detail.startswith(words)
    helps = "start fewer at once" if full.resource == "starting" else "delete sandboxes"
    knob = f"`rollbox quota set alice {quota.OPTIONS[full.resource]} N`"
    assert told.detail.endswith(f"; {helps}, or an operator raises the limit with {knob}")
    assert told.hint == ""


def test_a_full_installation_is_nobodys_quota() -> None:
    told = quota.waited_out(WISH, Full(5, 5), Position("alice", 1, 1), 10)
    assert (told.code, told.retry_after_ms) == ("capacity_unavailable", RETRY_MS)
    assert told.details["knob"] == quota.TOTAL_KNOB
    assert "estimate_ms" not in told.details
