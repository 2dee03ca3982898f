"""What the engine says about its machine, and what is therefore refused."""

from typing import Any

import pytest

from controlplane.cluster.engine.machine import Machine
from controlplane.errors import Problem
from controlplane.model import SandboxSpec

INFO = {"NCPU": 2, "MemTotal": 1 << 30, "MemoryLimit": True, "PidsLimit": True, "CpuCfsQuota": True}
VERSION = {"Version": "4.3.1", "Arch": "amd64", "Components": [{"Name": "Podman Engine"}]}


def test_what_the_engine_says_is_taken() -> None:
    machine = Machine.of(INFO, VERSION)
    assert (machine.architecture, machine.cpus, machine.memory_bytes) == ("amd64", 2, 1 << 30)
    assert (machine.description.engine_name, machine.description.engine_version) == ("podman", "4.3.1")


def test_an_engine_that_says_little_is_taken_as_it_is() -> None:
    Machine.of({}, {}).check(SandboxSpec(image="a"))


@pytest.mark.parametrize("missing", ["MemoryLimit", "PidsLimit", "CpuCfsQuota"])
def test_an_engine_that_would_ignore_limits_is_refused(missing: str) -> None:
    with pytest.raises(Problem, match="unsupported: the engine cannot limit"):
        Machine.of({**INFO, missing: False}, VERSION)


@pytest.mark.parametrize(
    ("option", "wish"),
    [
        ("cpu_millicores.limit", {"cpu_millicores": {"request": 1, "limit": 2001}}),
        ("memory_bytes.request", {"memory_bytes": {"request": 2 << 30, "limit": 2 << 30}}),
        ("disk_bytes", {"disk_bytes": 1 << 30}),
        ("gpu", {"gpu": 1}),
        ("node_selector", {"node_selector": {"zone": "a"}}),
        ("pull", {"pull": "lazy"}),
    ],
)
def test_more_than_the_machine_has_is_refused(option: str, wish: dict[str, Any]) -> None:
    with pytest.raises(Problem, match="unsupported") as caught:
        Machine.of(INFO, VERSION).check(SandboxSpec.model_validate({"image": "a", **wish}))
    assert caught.value.details["option"] == option
