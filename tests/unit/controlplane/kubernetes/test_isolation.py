"""What is promised of a sandbox's kernel, and what of it can be kept."""

from __future__ import annotations

import pytest

from controlplane.cluster.kubernetes.nodes import isolation
from controlplane.errors import Problem
from controlplane.model import SandboxSpec


@pytest.mark.parametrize("required", ["gVisor", "gvisor"])
def test_the_kernel_of_each_sandbox_counts_its_processes(required: str) -> None:
    what = isolation.describe("v1", "gvisor", "runsc", required)
    assert what.pids_limit == 512
    isolation.check_pids(SandboxSpec(image="a", pids_limit=64), what)


@pytest.mark.parametrize("required", ["any", "kata"])
def test_a_limit_of_processes_that_nothing_keeps_is_refused(required: str) -> None:
    what = isolation.describe("v1", "runc", "runc", required)
    assert what.pids_limit is None
    isolation.check_pids(SandboxSpec(image="a"), what)
    with pytest.raises(Problem, match="pids_limit 64: .* leave it out") as caught:
        isolation.check_pids(SandboxSpec(image="a", pids_limit=64), what)
    assert (caught.value.code, caught.value.details["option"]) == ("unsupported", "pids_limit")
