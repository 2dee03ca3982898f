"""`make ready` with stand-ins for its steps: all at once, what fails is named, and what is there is not built again."""

import contextlib
import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROGRAMS = ("rollbox-gateway", "rollbox-egress", "rollbox-sidecar", "rollbox-target")
# A step that ends when the other two have begun.
TOGETHER = '#!/bin/sh\ntouch "began-$0"\nuntil [ "$(ls began-* | wc -l)" = 3 ]; do sleep 0.01; done\n'
STEPS = ("setup/quick.sh", "setup/python.sh", "images/runtimes/python/build.sh")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout with the scripts alone."""
    shutil.copytree(ROOT / "setup", tmp_path / "setup")
    program(tmp_path / "setup/engine.sh", "#!/bin/sh\n")
    return tmp_path


def program(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)


def run(checkout: Path, script: str, **environ: str) -> subprocess.CompletedProcess[str]:
    command = [str(checkout / script)]
    given = {**os.environ, **environ}
    return subprocess.run(command, env=given, capture_output=True, text=True, timeout=60, check=False)


def test_its_steps_run_at_the_same_time_and_each_says_what_it_does_and_how_long_it_took(checkout: Path) -> None:
    for step in STEPS:
        program(checkout / step, TOGETHER.replace("$0", Path(step).stem))
    done = run(checkout, "setup/ready.sh")
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert [line.split(":")[0] for line in lines[:3]] == ["== programs", "== packages", "== image"]
    assert all("; usually " in line for line in lines[:3])
    assert {line.split(":")[0].strip() for line in lines[3:]} == {"programs", "packages", "image"}
    assert all(": ready after " in line for line in lines[3:])


def test_a_step_that_fails_is_named_and_ends_the_others(checkout: Path) -> None:
    pids = checkout / "pids"
    endless, fails, fine = STEPS
    program(checkout / endless, f"#!/bin/sh\necho $$ > {pids}\nexec sleep 1000\n")
    program(checkout / fails, f"#!/bin/sh\nuntil [ -s {pids} ]; do sleep 0.01; done\nexit 3\n")
    program(checkout / fine, "#!/bin/sh\n")
    done = run(checkout, "setup/ready.sh")
    assert (done.returncode, done.stderr.strip()) == (1, "== packages: failed")
    # Ended with the script: whoever waits for it is gone too, so it may be a zombie for a moment.
    assert eventually_gone(int(pids.read_text()))


def eventually_gone(pid: int) -> bool:
    """Whether the process ends within the limit of a test."""
    with contextlib.suppress(FileNotFoundError):
        while Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z":
            os.sched_yield()
    return True


@pytest.fixture
def built(checkout: Path) -> Path:
    """A checkout whose programs are of its sources."""
    for folder in ("gateway-rs", "sidecar", "contract"):
        (checkout / folder).mkdir()
        (checkout / folder / "source").write_text(folder)
    for name in PROGRAMS:
        program(checkout / ".venv/bin" / name, "")
    listed = f"cd '{checkout}' && source setup/listed.sh && digest_sources . > .venv/bin/.programs"
    subprocess.run(["bash", "-c", listed], check=True, timeout=60)
    return checkout


def asked(checkout: Path, tmp_path: Path) -> bool:
    """Whether cargo was asked to build."""
    program(tmp_path / "tools/cargo", f"#!/bin/sh\ntouch {tmp_path}/asked\nexit 7\n")
    program(tmp_path / "tools/rustc", "#!/bin/sh\necho host: here\n")
    path = f"{tmp_path}/tools:{os.environ['PATH']}"
    done = run(checkout, "setup/quick.sh", PATH=path, CARGO_TARGET_DIR=str(tmp_path / "cache"))
    assert done.returncode == (7 if (tmp_path / "asked").exists() else 0), done.stderr
    return (tmp_path / "asked").exists()


def test_programs_of_the_same_sources_are_not_built_again(built: Path, tmp_path: Path) -> None:
    assert not asked(built, tmp_path)


@pytest.mark.parametrize("change", ["source", "program", "unknown"])
def test_programs_of_other_sources_are(built: Path, tmp_path: Path, change: str) -> None:
    match change:
        case "source":
            (built / "gateway-rs/source").write_text("other")
        case "program":
            (built / ".venv/bin/rollbox-target").unlink()
        case _:
            (built / ".venv/bin/.programs").unlink()
    assert asked(built, tmp_path)
