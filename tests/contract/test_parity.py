"""All copies of the contract agree: Rust (through its Python module), control plane, SDK, and the golden vectors."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

import rollbox_gateway
from controlplane.errors.table import TABLE
from controlplane.model import SandboxSpec
from controlplane.model.pool import PoolSpec
from rollbox import Dataset, Scratch
from rollbox.errors import BY_CODE
from rollbox.options import CommandSettings, CreateSpec, Lifetime, Resources

CONTRACT = Path(__file__).parent.parent.parent / "contract"
TABLES = tomllib.loads((CONTRACT / "errors.toml").read_text())
SOURCE: dict[str, dict[str, Any]] = TABLES["code"]
REASONS: dict[str, dict[str, str]] = TABLES["reason"]
VECTORS: list[dict[str, Any]] = json.loads((CONTRACT / "vectors" / "errors.json").read_text())


def test_rust_has_the_table_of_the_contract() -> None:
    rust = {row["code"]: {k: v for k, v in row.items() if k != "code"} for row in rollbox_gateway.error_table()}
    assert rust == SOURCE


def test_the_control_plane_has_the_table_of_the_contract() -> None:
    assert {code: entry._asdict() for code, entry in TABLE.items()} == SOURCE


def test_the_sdk_has_one_exception_for_every_code() -> None:
    columns = ("fault", "retry", "mask_sample", "hint")
    seen = {code: {"code": cls.code, **{name: getattr(cls, name) for name in columns}} for code, cls in BY_CODE.items()}
    assert seen == {code: {"code": code, **{name: row[name] for name in columns}} for code, row in SOURCE.items()}


def test_there_is_one_vector_for_every_code() -> None:
    assert [vector["problem"]["code"] for vector in VECTORS[: len(SOURCE)]] == list(SOURCE)


def test_a_reason_has_a_hint_of_its_own() -> None:
    seen = [(vector["body"]["details"]["reason"], vector["body"]["hint"]) for vector in VECTORS[len(SOURCE) :]]
    assert seen == [(name, row["hint"]) for name, row in REASONS.items()]


def test_a_create_that_says_nothing_of_its_template_is_served_by_a_pool_that_says_nothing_either() -> None:
    declared = PoolSpec.model_validate({"template": {"image": "x"}, "max_warm": 1}).spec()
    asked = SandboxSpec.model_validate(CreateSpec(image="x").without_lease().to_json())
    assert asked.template_hash() == declared.template_hash() == SandboxSpec(image="x").template_hash()
    assert asked == declared


def test_the_sdk_has_every_option_of_a_create() -> None:
    body = CreateSpec(
        image="x",
        resources=Resources(
            pids=64,
            disk="1Gi",
            gpu=1,
            node_selector={"zone": "a"},
            pull="lazy",
            network="broker",
            mounts={"/data": Dataset("imagenet"), "/cache": Scratch("cache", size="1Gi")},
        ),
        commands=CommandSettings(env={"A": "b"}, cwd="/", user="root"),
        lifetime=Lifetime(idle_timeout=60),
        labels={"run": "1"},
        files={"/a": "b"},
        egress="packages",
    ).to_json()
    body["lease"]["name"] = "client-1"
    # Gateways send the digest, in place of the settings of commands.
    assert SandboxSpec.model_validate(body).model_fields_set == {*SandboxSpec.model_fields} - {"settings_digest"}


@pytest.mark.parametrize("vector", VECTORS, ids=lambda v: v["problem"]["code"])
def test_rust_writes_the_vector(vector: dict[str, Any]) -> None:
    problem = vector["problem"]
    body = rollbox_gateway.encode_problem(
        problem["code"], problem["detail"], problem["details"], vector["request_id"], vector["retry_after_ms"]
    )
    assert json.loads(body) == vector["body"]
