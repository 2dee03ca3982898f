"""All parts of one release say the same version, also in an image, which has no installed distributions."""

import re
import tomllib
from pathlib import Path

import yaml

import controlplane
import rollbox
import rollbox_integrations
from tests.support.world import world

ROOT = Path(__file__).parents[2]


def test_chart_control_plane_sdk_and_gateway_have_one_version() -> None:
    chart = yaml.safe_load((ROOT / "helm/Chart.yaml").read_text())
    cargo = tomllib.loads((ROOT / "gateway-rs/Cargo.toml").read_text())["workspace"]["package"]["version"]
    parts = (controlplane, rollbox, rollbox_integrations)
    assert {chart["version"], chart["appVersion"], *(part.__version__ for part in parts)} == {cargo}
    assert re.fullmatch(r"\d+\.\d+\.\d+", cargo)


async def test_the_control_plane_says_it() -> None:
    async with world() as plane:
        assert (await plane.api("GET", "/v1/info")).json["version"] == rollbox.__version__
