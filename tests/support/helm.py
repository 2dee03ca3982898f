"""The chart, rendered by the real helm."""

import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import yaml

from tests.support.installed import program

ROOT: Final = Path(__file__).parents[2]
CHART: Final = ROOT / "helm"
# Without a cluster helm takes an ancient version for the cluster's.
KUBE_VERSION: Final = "1.34.0"
REGISTRY: Final = "registry.example.com/rollbox"

Manifest = dict[str, Any]


class ChartError(Exception):
    """Helm refused; its own words are the message."""


def run(*arguments: str) -> str:
    """Runs helm; its standard output.

    Raises:
        ChartError: it failed.
    Cost: half a second.
    """
    done = subprocess.run([program("helm"), *arguments], capture_output=True, text=True, check=False, timeout=60)
    if done.returncode:
        raise ChartError(done.stderr)
    return done.stdout


def render(
    *settings: str,
    release: str = "rollbox",
    namespace: str = "rollbox",
    cluster: str = "",
    chart: Path = CHART,
    as_json: Sequence[str] = (),
    apis: Sequence[str] = (),
) -> list[Manifest]:
    """What an install would create: ``settings`` are those of ``--set``, on top of the registry and one key.

    Args:
        settings: each ``NAME=VALUE``.
        release: its name.
        namespace: its namespace.
        cluster: the address of an API server to look things up at; empty: the cluster is not at hand.
        chart: its folder.
        as_json: as ``settings``, with values in JSON.
        apis: what the cluster has beside Kubernetes' own, each ``GROUP/VERSION/KIND``.

    Raises:
        ChartError: the values are refused.
    """
    given = [f"images.registry={REGISTRY}", "apiKeys.me=0123456789abcdef", *settings]
    options = [word for setting in given for word in ("--set", setting)]
    options += [word for setting in as_json for word in ("--set-json", setting)]
    options += [word for api in apis for word in ("--api-versions", api)]
    looking = ["--dry-run=server", "--kube-apiserver", cluster] if cluster else []
    where = ("--namespace", namespace, "--kube-version", KUBE_VERSION)
    text = run("template", release, str(chart), *where, *looking, *options)
    return [one for one in yaml.safe_load_all(text) if one]


def notes(*settings: str, cluster: str = "") -> str:
    """What Helm tells after an install: it renders the notes only where it installs, so here they are a manifest's.

    Raises:
        ChartError: the values are refused.
    """
    with tempfile.TemporaryDirectory() as folder:
        copy = shutil.copytree(CHART, Path(folder) / "chart")
        text = 'kind: Notes\nmetadata: {name: notes}\ntext: {{ include "rollbox/templates/NOTES.txt" . | quote }}\n'
        (copy / "templates/shown.yaml").write_text(text)
        return str(named(render(*settings, cluster=cluster, chart=copy), "Notes", "notes")["text"])


def named(manifests: list[Manifest], kind: str, name: str) -> Manifest:
    """The one manifest of that kind and name."""
    (found,) = [one for one in manifests if one["kind"] == kind and one["metadata"]["name"] == name]
    return found


def of_kind(manifests: list[Manifest], kind: str) -> list[Manifest]:
    """All manifests of a kind."""
    return [one for one in manifests if one["kind"] == kind]


def pods(manifests: list[Manifest]) -> Iterator[tuple[str, Manifest]]:
    """Name, and ``{"metadata", "spec"}`` of every pod that these manifests lead to."""
    for one in manifests:
        name = f"{one['kind']} {one['metadata']['name']}"
        if one["kind"] == "Pod":
            yield name, one
        elif "template" in one.get("spec", {}):
            yield name, one["spec"]["template"]


def matches(selector: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    """Whether a label selector (of ``matchLabels`` alone) selects these labels."""
    assert set(selector) <= {"matchLabels"}, f"cannot judge {selector}"
    return all(labels.get(key) == value for key, value in selector.get("matchLabels", {}).items())
