"""A plugin of pytest: tells at the end of a run on a cluster which pods its tests have made, by file and by test.

A sandbox costs a node of two cores seconds of work: what a level costs is the pods that its tests make.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.levels.spent import Place, Pod, Ran, spent, table
from tests.support.installed import STRANGER, Installed, kubeconfig, program

PLACES = "rollbox-places"
FIELDS = (
    ".metadata.uid",
    ".metadata.namespace",
    ".spec.runtimeClassName",
    r".metadata.annotations.rollbox\.dev/record",
)
# No tab between them: a watch would be told of columns, and make spaces of it.
TEMPLATE = "|".join(f"{{{one}}}" for one in FIELDS) + r'{"\n"}'


def pytest_configure(config: pytest.Config) -> None:
    # With several processes, the one that has them hears of every test.
    if os.environ.get("ROLLBOX_TEST_PRODUCT") == "cluster" and not hasattr(config, "workerinput"):
        config.pluginmanager.register(_Counter())


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> None:
    """Notes where the test has made pods: only now its fixtures are there."""
    item.user_properties.append((PLACES, sorted(_places(item))))


def _places(item: pytest.Item) -> Iterator[Place]:
    for value in getattr(item, "funcargs", {}).values():
        stack = getattr(value, "stack", value)
        if isinstance(stack, Installed):
            yield stack.namespace, ""
            yield from ((stack.sandboxes, owner) for owner in (stack.owner, STRANGER))
    # What a test installs by itself, or makes without a release.
    named = (getattr(item.module, "RELEASE", None), getattr(item, "funcargs", {}).get("namespace"))  # type: ignore[attr-defined]
    for release in {one for one in named if isinstance(one, str)}:
        yield from ((str(release), ""), (f"{release}-sandboxes", ""))


@dataclass
class _Watch:
    """Every pod that the cluster has had while this ran: a watch, begun anew where the API server has ended it."""

    pods: dict[str, Pod] = field(default_factory=dict)
    _before: frozenset[str] = frozenset()
    _ending: bool = False
    _process: subprocess.Popen[str] | None = None
    _thread: threading.Thread | None = None

    def begin(self) -> None:
        """Look from now on."""
        listed = subprocess.run(_get(), env=_environ(), text=True, capture_output=True, check=False)
        self._before = frozenset(line.partition("|")[0] for line in listed.stdout.splitlines())
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Look no longer."""
        self._ending = True
        if self._process:
            self._process.terminate()
        if self._thread:
            self._thread.join(10)

    def _run(self) -> None:
        while not self._ending:
            # The watch ends with the API server; another begins.
            with subprocess.Popen(
                _get("--watch"), env=_environ(), text=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
            ) as self._process:
                assert self._process.stdout is not None
                for line in self._process.stdout:
                    self._saw(line.rstrip("\n").split("|", len(FIELDS) - 1))
            time.sleep(1)

    def _saw(self, fields: list[str]) -> None:
        if len(fields) != len(FIELDS) or fields[0] in self._before or fields[0] in self.pods:
            return
        uid, namespace, runtime_class, record = fields
        owner = ""
        # A pod that a test has made by hand may have anything there.
        with contextlib.suppress(ValueError, AttributeError):
            owner = str(json.loads(record).get("owner", ""))
        self.pods[uid] = Pod(namespace, owner, bool(runtime_class), time.time())


def _get(*more: str) -> tuple[str, ...]:
    each = f"{{range .items[*]}}{TEMPLATE}{{end}}" if not more else TEMPLATE
    return (program("kubectl"), "get", "pods", "-A", *more, "-o", f"jsonpath={each}")


def _environ() -> dict[str, str]:
    return {**os.environ, "KUBECONFIG": str(kubeconfig())}


class _Counter:
    def __init__(self) -> None:
        self._watch = _Watch()
        self._tests: dict[str, Ran] = {}

    def pytest_sessionstart(self) -> None:
        self._watch.begin()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        ran = self._tests.setdefault(report.nodeid, Ran(report.nodeid, report.start, report.stop))
        ran.ended_s = report.stop
        if report.when == "teardown":
            properties: dict[str, Any] = dict(report.user_properties)
            ran.places = frozenset((str(place), str(owner)) for place, owner in properties.get(PLACES, ()))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        self._watch.end()
        terminalreporter.section("pods made by these tests")
        for line in table(spent([*self._tests.values()], self._watch.pods.values())):
            terminalreporter.write_line(line)
