"""The hosts of `integrations/`, each with its packages in an environment of its own, and the run of its suite."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.support.junit import NOT_SUPPORTED, read

ROOT = Path(__file__).parents[2]
PLACE = ROOT / "build/integrations"
LISTS = ROOT / "requirements/integrations"
TESTS = ROOT / "integrations/tests"
UV = Path(sys.executable).with_name("uv")
# "newest" has the newest versions in place of those that are pinned: what they break is not known before. "oldest" has
# the oldest that the adapters work with, of hosts that have a list of those.
CHOSEN = os.environ.get("ROLLBOX_TEST_VERSIONS") or "pinned"
NEWEST, OLDEST = CHOSEN == "newest", CHOSEN == "oldest"
BACKEND = "gvisor" if os.environ.get("ROLLBOX_TEST_PRODUCT") == "cluster" else "engine"


@dataclass(frozen=True)
class Suite:
    """What a host's tests did.

    Attributes:
        passed: how many.
        failed: what each of the others said, by name; those that were skipped among them, but for those that say that
            they are not supported, and why.
    """

    passed: int
    failed: dict[str, str]


def lists(host: str) -> tuple[Path, ...]:
    """The lists of a host's packages, in the versions that are chosen, one over the other; one may not be there."""
    if NEWEST:
        return (LISTS / f"{host}.in",)
    pinned = LISTS / f"{host}.txt"
    return (pinned, LISTS / f"{host}-oldest.txt") if OLDEST else (pinned,)


def pinned(host: str) -> str:
    """The list of a host's packages in the versions that are pinned."""
    return (LISTS / f"{host}.txt").read_text()


def named(host: str) -> str:
    """What folders and records of a host are called, in the versions that are chosen."""
    return host if CHOSEN == "pinned" else f"{host}-{CHOSEN}"


def record_of(host: str) -> Path:
    """The file with what the tests of a host did, in the versions that are chosen, where this run has its sandboxes."""
    return PLACE / f"{named(host)}-{BACKEND}.xml"


@cache
def environment(host: str, version: str) -> Path:
    """Return the Python of a host's environment, which is made if it is not there or its list has changed.

    That with the newest versions is made anew, once in a process.

    Args:
        host: by which its list of packages is named.
        version: of Python, for which the list is made; of a version with a patch, any patch runs it.

    Raises:
        RuntimeError: its packages cannot be installed, or there is no such Python.
    """
    wanted = lists(host)
    folder = PLACE / named(host)
    made, inside = folder / "installed", folder / "bin/python"
    modules = LISTS / "npm" / host
    packages = "".join(file.read_text() for file in (*wanted, *sorted(modules.glob("*.json"))))
    if not NEWEST and made.is_file() and made.read_text() == packages:
        return inside
    _uv("venv", "--clear", "--python", interpreter(version), str(folder))
    # A list has all that is installed; one of the oldest has what is otherwise.
    checked = () if NEWEST else ("--require-hashes", "--no-deps")
    chosen = ("--python-version", version) if version.count(".") > 1 else ()
    # Packages of a host that its sandboxes do without, and that take gigabytes.
    left_out = LISTS / f"{host}.override"
    spared = ("--override", str(left_out)) if left_out.is_file() else ()
    for one in wanted:
        _uv("pip", "install", "--python", str(inside), *chosen, *checked, *spared, "--requirement", str(one))
    _uv(
        "pip",
        "install",
        "--python",
        str(inside),
        "--no-deps",
        "--no-build-isolation",
        *_editable("sdk", "integrations"),
    )
    if modules.is_dir():
        _modules_of_javascript(modules, folder / "npm")
    made.write_text(packages)
    return inside


def interpreter(version: str) -> str:
    """Return a Python of this version, like "3.12", of this machine; a patch is not looked at.

    Raises:
        RuntimeError: there is none.
    """
    version = minor(version)
    if sys.version_info[:2] == tuple(map(int, version.split("."))):
        return sys.executable
    kept = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    on_path = shutil.which(f"python{version}")
    places = [*kept.glob(f"{version}.*/bin/python{version}"), *([Path(on_path)] if on_path else [])]
    for place in places:
        if subprocess.run([place, "-c", ""], capture_output=True, check=False).returncode == 0:
            return str(place)
    raise RuntimeError(f"there is no Python {version} on PATH or in {kept}")


def minor(version: str) -> str:
    """Return "3.12" of "3.12" and of "3.12.1"."""
    return ".".join(version.split(".")[:2])


def suite(python: Path, folder: str, environ: dict[str, str], record: Path, name: str) -> Suite:
    """Run the tests of `integrations/tests/FOLDER` in a host's environment.

    Args:
        python: of the environment.
        folder: of the tests.
        environ: what the tests have besides this process's variables.
        record: the file that has what they did.
        name: of the suite, in the record.
    """
    record.parent.mkdir(parents=True, exist_ok=True)
    record.unlink(missing_ok=True)
    words = ("-m", "pytest", "-q", "-c", str(TESTS / "pytest.ini"), "--rootdir", str(TESTS))
    told = (f"--junitxml={record}", "-o", f"junit_suite_name={name}")
    run = subprocess.run(
        [python, *words, *told, str(TESTS / folder)],
        cwd=TESTS,
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
        check=False,
    )
    if not record.is_file():
        return Suite(0, {folder: run.stdout[-4000:] + run.stderr[-4000:]})
    return _read(record)


def versions(python: Path, *distributions: str) -> dict[str, str]:
    """Return which versions of these packages an environment has."""
    code = "import sys; from importlib.metadata import version; print(*map(version, sys.argv[1:]))"
    told = subprocess.run([python, "-c", code, *distributions], check=True, stdout=subprocess.PIPE, text=True)
    return dict(zip(distributions, told.stdout.split(), strict=True))


def frozen(host: str) -> str:
    """Return the packages of a host's environment with their versions, as `pip freeze` writes them; nothing of none."""
    inside = PLACE / named(host) / "bin/python"
    if not inside.exists():
        return ""
    told = subprocess.run([UV, "pip", "freeze", "--python", str(inside)], capture_output=True, text=True, check=False)
    return told.stdout


def modules_of_javascript(host: str) -> dict[str, str]:
    """Return which versions of modules of npm a host's environment has, by their names."""
    inside = PLACE / named(host) / "npm/node_modules"
    files = [*inside.glob("*/package.json"), *inside.glob("@*/*/package.json")]
    wanted = LISTS / "npm" / host / "package.json"
    names = json.loads(wanted.read_text())["dependencies"] if wanted.is_file() else {}
    found = {one["name"]: one["version"] for one in (json.loads(file.read_text()) for file in files)}
    return {name: found[name] for name in names}


def _read(record: Path) -> Suite:
    tests = read(record.read_text()).tests
    passed = sum(one.outcome == "passed" for one in tests)
    told = [one for one in tests if one.outcome == "skipped" and one.said.startswith(NOT_SUPPORTED)]
    failed = {f"{one.module}.{one.name}": one.said for one in tests if one.outcome != "passed" and one not in told}
    return Suite(passed, failed)


def _modules_of_javascript(listed: Path, inside: Path) -> None:
    """Install what a host's tests need of npm."""
    if shutil.which("npm") is None:
        subprocess.run([ROOT / "setup/packages.sh", "nodejs", "npm"], check=True)
    inside.mkdir()
    for file in listed.glob("*.json"):
        shutil.copy(file, inside)
    quiet = ("--silent", "--ignore-scripts", "--no-audit", "--no-fund")
    subprocess.run(["npm", "ci", *quiet], cwd=inside, check=True)
    if NEWEST:
        names = json.loads((listed / "package.json").read_text())["dependencies"]
        subprocess.run(["npm", "install", *quiet, *(f"{name}@latest" for name in names)], cwd=inside, check=True)


def _editable(*folders: str) -> list[str]:
    return [word for folder in folders for word in ("--editable", str(ROOT / folder))]


def _uv(*words: str) -> None:
    told = subprocess.run([UV, *words, "--quiet"], stderr=subprocess.PIPE, text=True, check=False)
    if told.returncode:
        raise RuntimeError(f"uv {words[0]} {words[1]} has failed:\n{told.stderr.strip()}")
