"""Rust: LLVM's counters in the crates of the workspace, around `cargo test`."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from tests.coverage.figures import OUT, ROOT, Counts, Figures

HERE = Path(__file__).parent
DATA = OUT / "rust"
MANIFEST = ROOT / "gateway-rs" / "Cargo.toml"
CARGO_TEST = ("cargo", "test", "--locked", "--quiet", "--manifest-path", str(MANIFEST), "--workspace")
LLVM = "22"
# Linked into the programs, since tests start some of them with an empty environment.
NAME = """.section .rodata.__llvm_profile_filename,"aG",@progbits,__llvm_profile_filename,comdat
.globl __llvm_profile_filename
.hidden __llvm_profile_filename
__llvm_profile_filename: .asciz "%s"
"""
SOURCES = (ROOT / "gateway-rs" / "crates", ROOT / "sidecar")
# A unit test's module is the last thing in its file.
TESTS = re.compile(r"^#\[cfg\(test\)\]\n(?:#\[.*\]\n)*(?:pub\(crate\) )?mod tests \{", re.MULTILINE)


def measure() -> Figures:
    """Run the tests and count."""
    figures = Figures("rust")
    tools = _tools()
    if isinstance(tools, str):
        return figures.lacks(tools)
    shutil.rmtree(DATA, ignore_errors=True)
    DATA.mkdir(parents=True)
    target = Path(os.environ.get("CARGO_TARGET_DIR", OUT / "target")) / "coverage"
    environ = {**os.environ, **_counters(), "CARGO_TARGET_DIR": str(target)}
    built = subprocess.run(
        [*CARGO_TEST, "--no-run", "--message-format=json-render-diagnostics"],
        cwd=ROOT,
        env=environ,
        stdout=subprocess.PIPE,
        check=False,
    )
    if built.returncode:
        return figures.lacks("the tests were not built")
    programs = {json.loads(line).get("executable") for line in built.stdout.splitlines()} - {None}
    status = subprocess.run([*CARGO_TEST, "--no-fail-fast"], cwd=ROOT, env=environ, check=False).returncode
    figures.notes.append("cargo test: passed") if status == 0 else figures.lacks(f"cargo test: exit {status}")
    return _read(figures, _report(tools, sorted(programs)))


def _counters() -> dict[str, str]:
    """The environment for cargo. A process has a file (%p), adds to the one of its number before (%m), maps it (%c)."""
    files = f"{DATA}/%p-%m%c.profraw"
    # Outside of DATA, which is emptied: cargo does not link again for it.
    source, linked = OUT / "name.s", OUT / "name.o"
    source.write_text(NAME % files)
    subprocess.run(["cc", "-c", str(source), "-o", str(linked)], check=True)
    wrapper = str(HERE / "rustc.py")
    # Tests in the documentation are compiled by rustdoc, which has no wrapper.
    return {"LLVM_PROFILE_FILE": files, "RUSTC_WORKSPACE_WRAPPER": wrapper, "COVERAGE_NAME": str(linked)}


def _tools() -> Path | str:
    """The folder of llvm-profdata and llvm-cov, or why there is none: rustup's, else pinned ones of a package."""
    if not shutil.which("rustc"):
        return "not measured: rustc is not on PATH"
    libraries = subprocess.run(["rustc", "--print", "target-libdir"], capture_output=True, text=True, check=True).stdout
    if (Path(libraries.strip()).parent / "bin" / "llvm-cov").exists():
        return Path(libraries.strip()).parent / "bin"
    version = subprocess.run(["rustc", "-vV"], capture_output=True, text=True, check=True).stdout
    if f"LLVM version: {LLVM}." not in version:
        return f"not measured: rustup's component llvm-tools is not there, and this rustc's LLVM is not {LLVM}"
    folder = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "rollbox" / f"llvm-{LLVM}"
    if not (folder / "llvm" / "bin" / "llvm-cov").exists():
        pip = (sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--require-hashes")
        asked = [*pip, "--upgrade", "--target", str(folder), "--requirement", str(HERE / "llvm.txt")]
        if subprocess.run(asked, check=False).returncode:
            return f"not measured: neither rustup's component llvm-tools nor LLVM {LLVM}'s package is to be had"
    return folder / "llvm" / "bin"


def _report(tools: Path, programs: list[str]) -> str:
    """What all processes have counted, in the format of lcov."""
    listed = DATA / "processes.txt"
    listed.write_text("".join(f"{path}\n" for path in DATA.glob("*.profraw")))
    merged = DATA / "all.profdata"
    merge = (str(tools / "llvm-profdata"), "merge", "-sparse", "-failure-mode=all")
    subprocess.run([*merge, "-f", str(listed), "-o", str(merged)], check=True)
    objects = [argument for program in programs for argument in ("-object", program)]
    export = (str(tools / "llvm-cov"), "export", "-format=lcov", f"-instr-profile={merged}")
    # Of the product's sources only: LLVM fails an assertion at a file of the tests.
    sources = [str(path) for folder in SOURCES for path in (folder / "src", *folder.glob("*/src")) if path.is_dir()]
    return subprocess.run(
        [*export, *objects, "-sources", *sources], stdout=subprocess.PIPE, text=True, check=True
    ).stdout


def _read(figures: Figures, lcov: str) -> Figures:
    """The figures of the crates' own sources, without their tests."""
    for record in lcov.split("end_of_record\n"):
        path = Path(record.partition("SF:")[2].partition("\n")[0])
        if not any(path.is_relative_to(sources) for sources in SOURCES) or not _is_source(path):
            continue
        end = _tests_begin(path)
        lines = [line.split(",") for line in re.findall(r"^DA:(.*)$", record, re.MULTILINE)]
        branches = [branch.split(",") for branch in re.findall(r"^BRDA:(.*)$", record, re.MULTILINE)]
        lines = [line for line in lines if int(line[0]) < end]
        branches = [branch for branch in branches if int(branch[0]) < end]
        run = [sum(entry[-1] not in {"0", "-"} for entry in entries) for entries in (lines, branches)]
        figures.files[str(path.relative_to(ROOT))] = Counts(len(lines), run[0], len(branches), run[1])
    every = {path for sources in SOURCES for path in sources.rglob("*.rs") if _is_source(path)}
    missing = sorted(str(path.relative_to(ROOT)) for path in every if "fn " in path.read_text())
    missing = [path for path in missing if path not in figures.files]
    figures.notes.append(f"in no test's program: {', '.join(missing) or 'nothing'}")
    return figures


def _is_source(path: Path) -> bool:
    """Whether the file is a part of the product: crates keep their tests and fuzzers beside src, or as tests.rs."""
    return "src" in path.parts and "fuzz" not in path.parts and path.name != "tests.rs" and path.parent.name != "tests"


def _tests_begin(path: Path) -> int:
    """The line where the tests in this file begin."""
    text = path.read_text()
    found = TESTS.search(text)
    return text.count("\n", 0, found.start()) + 1 if found else sys.maxsize
