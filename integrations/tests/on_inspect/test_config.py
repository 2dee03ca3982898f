"""What compose files and Dockerfiles come to, and what of them is refused by its name."""

from __future__ import annotations

from pathlib import Path

import pytest
from inspect_ai.util import ComposeConfig, SandboxEnvironmentSpec

from rollbox import EgressPolicy, EgressRule
from rollbox_integrations.inspect import Build, RollboxConfig
from rollbox_integrations.inspect.compose import resolved

SERVICE = """
services:
  default:
    image: python:${SAMPLE_METADATA_PYTHON}
    command: tail -f /dev/null
    init: true
    network_mode: none
    working_dir: /work
    user: "1000"
    environment: [A=1, B=]
    cpus: 2
    deploy: {resources: {limits: {memory: 512m}, reservations: {memory: 256m, cpus: 0.5}}}
    x-rollbox: {pids: 64, pull: lazy}
"""


def test_a_service_comes_to_a_sandbox(tmp_path: Path) -> None:
    file = tmp_path / "compose.yaml"
    file.write_text(SERVICE)
    assert resolved(str(file), {"python": "3.12"}) == RollboxConfig(
        image="python:3.12",
        egress="offline",
        cwd="/work",
        user="1000",
        env={"A": "1", "B": ""},
        cpu=("0.5", 2.0),
        memory=("256Mi", "512Mi"),
        pids=64,
        pull="lazy",
    )


def test_a_dockerfile_is_built(tmp_path: Path) -> None:
    build = Build(folder=str(tmp_path), file=str(tmp_path / "Dockerfile"))
    assert resolved(str(tmp_path / "Dockerfile"), {}) == RollboxConfig(build=build, egress="offline")
    file = tmp_path / "compose.yaml"
    file.write_text("services: {default: {build: .}}")
    assert resolved(str(file), {}) == RollboxConfig(build=build)


@pytest.mark.parametrize(
    ("service", "words"),
    [
        ({"ports": ["80:80"]}, "ports of a compose service is not supported"),
        ({"volumes": ["/var/run:/x"]}, "volumes of a compose service"),
        ({"privileged": True}, "privileged of a compose service"),
        ({"command": "postgres"}, "command 'postgres': the main process of a sandbox only waits"),
        ({"network_mode": "host"}, "network_mode 'host' is not supported"),
        ({"environment": ["TOKEN"]}, "the variable TOKEN has no value"),
        ({"mem_limit": "lots"}, "'lots' is no size"),
        ({"x-rollbox": {"memroy": "1Gi"}}, "memroy"),
        ({"image": "a:${SAMPLE_METADATA_TAG}"}, r"no value for \$\{SAMPLE_METADATA_TAG\}"),
    ],
)
def test_what_a_sandbox_cannot_be_is_refused_by_its_name(service: dict[str, object], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        resolved(ComposeConfig.model_validate({"services": {"default": {"image": "a", **service}}}), {})


def test_several_services_are_refused_by_their_names() -> None:
    config = ComposeConfig.model_validate({"services": {"default": {"image": "a"}, "db": {"image": "b"}}})
    with pytest.raises(ValueError, match="default, db are more than one"):
        resolved(config, {})


def test_a_logged_configuration_is_read_again() -> None:
    policy = EgressPolicy(mode="allow", allow=[EgressRule(host="pypi.org")])
    spec = SandboxEnvironmentSpec("rollbox", RollboxConfig(image="a", memory=("1Gi", "2Gi"), egress=policy))
    again = SandboxEnvironmentSpec.model_validate(spec.model_dump())
    assert again.config.options() == spec.config.options()
    assert hash(spec) == hash(SandboxEnvironmentSpec("rollbox", spec.config))
