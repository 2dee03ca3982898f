"""Definitions that are missing or old are named, with the command that helps."""

from typing import Any

import pytest
import yaml

from controlplane.cluster.documents import KINDS, Kind
from controlplane.cluster.kubernetes.declared.documents import PLURALS
from controlplane.operator.definitions import trouble
from tests.support.helm import CHART

COMMAND = "kubectl apply --server-side --force-conflicts -f files/crds"


def shipped(plural: str = "sandboxpools") -> Any:
    return yaml.safe_load((CHART / "files" / "crds" / f"{plural}.rollbox.dev.yaml").read_text())


@pytest.mark.parametrize("kind", KINDS)
def test_the_charts_own_definition_is_of_this_version(kind: Kind) -> None:
    assert trouble(kind, shipped(PLURALS[kind])) == ""


def test_one_that_is_not_there_is_named_with_the_command_that_brings_it() -> None:
    assert trouble("quotas", None) == (
        "the cluster has no definition sandboxquotas.rollbox.dev, so no SandboxQuota can be declared: run in the "
        f"folder of this version's chart: {COMMAND}/sandboxquotas.rollbox.dev.yaml"
    )
    assert (CHART / "files" / "crds" / "sandboxquotas.rollbox.dev.yaml").is_file()


def test_an_old_one_is_told_with_what_it_would_drop() -> None:
    old = shipped()
    spec = old["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    del spec["surge"], spec["template"]["properties"]["gpu"]
    said = "the cluster's definition sandboxpools.rollbox.dev is old and drops spec.surge, spec.template.gpu: "
    assert trouble("pools", old).startswith(said)
    assert trouble("pools", old).endswith(f"{COMMAND}/sandboxpools.rollbox.dev.yaml")


def test_one_without_our_version_is_told() -> None:
    old = shipped()
    old["spec"]["versions"][0]["name"] = "v1alpha0"
    assert "has no version v1alpha1" in trouble("pools", old)


def test_an_old_one_that_insists_on_what_may_be_left_out_is_told() -> None:
    old = shipped()
    spec = old["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    spec["template"]["properties"]["memory_bytes"]["required"] = ["request", "limit"]
    said = (
        "the cluster's definition sandboxpools.rollbox.dev is old and insists on spec.template.memory_bytes.request: "
    )
    assert said in trouble("pools", old)
