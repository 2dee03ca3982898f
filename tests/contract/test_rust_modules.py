"""The modules of each Rust crate use one another in one direction."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import rust_modules

CYCLES = {
    "two files": ({"a": "use crate::b;", "b": "use crate::a::Thing;"}, {"src: a, b"}),
    "three files": (
        {"a": "use crate::b::X;", "b": "use crate::{c::{self, D}};", "c": "crate::a::f()"},
        {"src: a, b, c"},
    ),
    "two folders": ({"a": "", "a/x": "use crate::b::y;", "b": "", "b/y": "", "b/z": "use crate::a::w;"}, {"src: a, b"}),
    "a file and its folder's own": ({"a": "mod b; use b::T;", "a/b": "use super::CONSTANT;"}, {"a: b, mod"}),
    "the same as mod.rs": ({"a/mod": "pub use self::b::T;", "a/b": "use super::C;"}, {"a: b, mod"}),
    "two files of a folder": ({"a/mod": "", "a/b": "use super::c;", "a/c": "use super::super::a::b;"}, {"a: b, c"}),
    "re-exports": (
        {"lib": "pub use a::{T, V}; pub use b::U as W;", "a": "use crate::W;", "b": "crate::T"},
        {"src: a, b"},
    ),
    "a path in the code": ({"a": "mod b; fn f() { b::g() }", "a/b": "fn g() { super::f() }"}, {"a: b, mod"}),
}


def crate(folder: Path, files: dict[str, str]) -> Path:
    """A crate with these files."""
    for name, text in files.items():
        file = folder / "src" / f"{name}.rs"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return folder


@pytest.mark.parametrize("name", rust_modules.CRATES)
def test_no_crate_has_a_cycle(name: str) -> None:
    assert rust_modules.cycles(rust_modules.ROOT / name) == set()


@pytest.mark.parametrize(("files", "found"), CYCLES.values(), ids=CYCLES.keys())
def test_a_cycle_is_found(tmp_path: Path, files: dict[str, str], found: set[str]) -> None:
    named = {one.replace("src:", f"{tmp_path.name}:") for one in found}
    assert rust_modules.cycles(crate(tmp_path, files)) == named
