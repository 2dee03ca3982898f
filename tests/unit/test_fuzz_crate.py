"""The fuzz targets, a workspace of their own, are built of the packages of which the product is built."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parent.parent.parent
RUST: Final = ROOT / "gateway-rs"
LIBFUZZER: Final = {"libfuzzer-sys", "arbitrary", "jobserver"}
REMEDY: Final = "copy gateway-rs/Cargo.lock to gateway-rs/fuzz, and run `cargo metadata` there"


def _read(file: Path) -> dict[str, Any]:
    return tomllib.loads(file.read_text())


def _packages(workspace: Path) -> dict[tuple[str, str], dict[str, Any]]:
    return {(one["name"], one["version"]): one for one in _read(workspace / "Cargo.lock")["package"]}


def test_the_targets_are_locked_to_the_packages_of_the_product() -> None:
    other = set(_packages(RUST / "fuzz")) - set(_packages(RUST))
    assert {name for name, _ in other} == LIBFUZZER | {"fuzz"}, REMEDY


def test_what_the_product_depends_on_is_locked() -> None:
    locked = {name: one.get("dependencies", []) for (name, _), one in _packages(RUST / "fuzz").items()}
    for manifest in (_read(path) for path in (*RUST.glob("crates/*/Cargo.toml"), ROOT / "sidecar/Cargo.toml")):
        name = manifest["package"]["name"]
        if name in locked:
            assert set(manifest["dependencies"]) <= {text.split()[0] for text in locked[name]}, f"{name}: {REMEDY}"


def test_every_target_is_described() -> None:
    page = (ROOT / "docs/inside/tests.md").read_text()
    targets = sorted(path.stem for path in (RUST / "fuzz/src/bin").glob("*.rs"))
    assert [target for target in targets if f"| `{target}` |" not in page] == []
