"""What was added to a model that is stored is written only where it is asked for.

Replicas of the version before, and one that an installation goes back to, read the same pools, quotas and records, and
refuse a field that they do not know.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from pydantic_core import from_json, to_json

from controlplane.lifecycle.admission.quotas import DeclaredQuota
from controlplane.model import Range, SandboxSpec
from controlplane.model.base import Closed
from controlplane.model.pool import PoolSpec
from controlplane.model.spec import Template

# The fields that were always written; a later one is not to be added here.
_TEMPLATE = {
    "image",
    "cpu_millicores",
    "cpu_millicores.request",
    "cpu_millicores.limit",
    "memory_bytes",
    "memory_bytes.request",
    "memory_bytes.limit",
    "pids_limit",
    "disk_bytes",
    "gpu",
    "node_selector",
}
_SPEC = {"env", "cwd", "user", "labels", "ttl_ms", "start_timeout_ms", "idle_timeout_ms", "lease"}
_POOL = {"template", "min_warm", "max_warm", "starts_per_minute", "surge", "auto", "drain"}
_QUOTA = {"owner", "sandboxes", "cpu_millicores", "memory_bytes", "gpu", "starting", "commit_bytes"}
KNOWN: list[tuple[Closed, set[str]]] = [
    (PoolSpec(template=Template(image="a"), max_warm=1), _POOL | {f"template.{one}" for one in _TEMPLATE}),
    (SandboxSpec(image="a"), _TEMPLATE | _SPEC),
    (DeclaredQuota(owner="a"), _QUOTA),
]


def paths(members: Mapping[str, Any], before: str = "") -> Iterator[str]:
    for name, value in members.items():
        yield f"{before}{name}"
        if isinstance(value, Mapping):
            yield from paths(value, f"{before}{name}.")


@pytest.mark.parametrize(("plain", "known"), KNOWN)
def test_a_default_that_the_version_before_does_not_know_is_not_written(plain: Closed, known: set[str]) -> None:
    # As a declaration is written, and as a part of a record.
    for written in (plain.model_dump(mode="json"), from_json(to_json({"spec": plain}))["spec"]):
        assert set(paths(written)) - known == set()


def test_what_is_asked_for_is_written_and_read() -> None:
    template = Template(image="a", pull="lazy", cpu_millicores=Range(limit=500))
    asked = PoolSpec(template=template, max_warm=1, recording_of="alice", interpreter="python")
    written = asked.model_dump(mode="json")
    assert (written["recording_of"], written["interpreter"]) == ("alice", "python")
    assert written["template"]["pull"] == "lazy"
    assert written["template"]["cpu_millicores"] == {"limit": 500}
    assert PoolSpec.model_validate(written) == asked
    assert PoolSpec.model_validate(written | {"recording_of": ""}).model_dump(mode="json") == {
        name: value for name, value in written.items() if name != "recording_of"
    }
