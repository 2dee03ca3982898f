"""images/build.sh with stand-ins for engine, registry and converter: how an ordered image gets to a registry."""

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
REGISTRY = "registry.example.com/rollbox"

# Every image exists and every push works; what is asked is kept.
ENGINE = """#!/bin/sh
echo "$@" >> "$ASKED"
case $1.$3 in image.--format) echo 1 ;; esac
"""
LACKS = "#!/bin/sh\nexit 1\n"
# Builds a converter that says its version and keeps a layer in its folder.
BUILDER = """#!/bin/sh
cat > "$2/$1" <<END
#!/bin/sh
# $CONVERTER
echo "convert \\$*" >> "$ASKED"
mkdir -p "\\$4" && touch "\\$4/layer"
exit ${CONVERT_STATUS:-0}
END
chmod +x "$2/$1"
"""

# There is no image, until one is imported.
ENGINE_WITHOUT_BASES = """#!/bin/sh
case $1 in image | pull) exit 1 ;; esac
"""
# Makes a base, and is not done before another one has begun, or for two seconds.
BASE_MAKER = """#!/bin/sh
for last; do :; done
echo begun >> "$ASKED"
for _ in $(seq 20); do
  [ "$(wc -l < "$ASKED")" = 1 ] || break
  sleep 0.1
done
echo files > "$last"
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """What the script needs of a checkout, and programs that stand in for those it calls."""
    shutil.copytree(ROOT / "images", tmp_path / "images")
    (tmp_path / "helm").mkdir()
    (tmp_path / "helm/Chart.yaml").write_text('appVersion: "0.1.0"\n')
    for name, text in {"bin/docker": ENGINE, "bin/skopeo": LACKS, "setup/go.sh": BUILDER}.items():
        program = tmp_path / name
        program.parent.mkdir(exist_ok=True)
        program.write_text(text)
        program.chmod(0o755)
    return tmp_path


def environment_of(checkout: Path) -> Mapping[str, str]:
    """What the script is run with: the stand-ins come first on the path."""
    return {
        "PATH": f"{checkout / 'bin'}:{os.environ['PATH']}",
        "DOCKER_HOST": "tcp://elsewhere",
        "CARGO_TARGET_DIR": str(checkout),
        "HOME": str(checkout),
        "ROLLBOX_REGISTRY": REGISTRY,
        "ASKED": str(checkout / "asked"),
        "CONVERTER": "1",
    }


def build(checkout: Path, **environment: str) -> tuple[str, list[str]]:
    """Builds the default runtime image; gives what the script warned of, and what it asked the stand-ins for."""
    asked = checkout / "asked"
    asked.unlink(missing_ok=True)
    base = environment_of(checkout)
    script = [str(checkout / "images/build.sh"), "python"]
    done = subprocess.run(script, env={**base, **environment}, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stderr, asked.read_text().splitlines()


def pushed(asked: list[str]) -> list[str]:
    """The tags that the engine pushed."""
    return [line.rsplit(":", 1)[1] for line in asked if line.startswith("push")]


def tag_of(checkout: Path) -> str:
    """The tag that is the digest of the image's content."""
    return (checkout / "build/images/python.image").read_text().strip().rsplit(":", 1)[1]


def test_a_registry_that_only_the_engine_reaches_gets_the_plain_image(checkout: Path) -> None:
    warned, asked = build(checkout, CONVERT_STATUS="1")
    assert pushed(asked) == ["plain", tag_of(checkout), "0.1.0"]
    # Of two names one warning and one attempt.
    assert warned.count("ROLLBOX_ORDERED=") == 1
    assert sum(line.startswith("convert") for line in asked) == 1


def test_an_ordered_image_is_pushed_by_the_converter_alone(checkout: Path) -> None:
    warned, asked = build(checkout)
    assert set(pushed(asked)) == {"plain"}
    assert "ROLLBOX_ORDERED" not in warned
    targets = [line.split()[-1] for line in asked if line.startswith("convert")]
    assert targets == [f"{REGISTRY}/python:{tag_of(checkout)}", f"{REGISTRY}/python:0.1.0"]


def test_a_newer_converter_converts_again_and_leaves_nothing_of_the_one_before(checkout: Path) -> None:
    build(checkout)
    before = tag_of(checkout)
    _, asked = build(checkout, CONVERTER="2")
    now = tag_of(checkout)
    assert now != before
    assert next(line.split()[-1] for line in asked if line.startswith("convert")).endswith(now)
    converted = checkout / "build/images/python.converted"
    assert [one.relative_to(converted).as_posix() for one in converted.rglob("*")] == [now, f"{now}/layer"]


def test_two_runs_at_once_make_a_base_once(checkout: Path) -> None:
    for name, text in {"docker": ENGINE_WITHOUT_BASES, "mmdebstrap": BASE_MAKER}.items():
        (checkout / "bin" / name).write_text(text)
        (checkout / "bin" / name).chmod(0o755)
    script, environ = [str(checkout / "images/build.sh"), "--bases", "python"], environment_of(checkout)
    with subprocess.Popen(script, env=environ) as one, subprocess.Popen(script, env=environ) as another:
        assert [one.wait(60), another.wait(60)] == [0, 0]
    assert (checkout / "asked").read_text() == "begun\n"


@pytest.mark.parametrize(
    "script",
    [one for one in sorted(ROOT.glob("*/**/*.sh")) if "mmdebstrap --quiet" in one.read_text()],
    ids=lambda one: str(one.relative_to(ROOT)),
)
def test_no_image_takes_along_what_tells_of_the_machine_that_built_it(script: Path) -> None:
    """Mmdebstrap copies the machine's resolver and name."""
    options = [line for line in script.read_text().splitlines() if "--customize-hook=" in line]
    assert len(options) == 1
    assert 'rm -f "$1/etc/resolv.conf" "$1/etc/hostname"' in options[0]
