"""The tables of the page "Under gVisor" say what was measured, side by side."""

from __future__ import annotations

from typing import Any

import pytest

from tests.bench.declared import all_declared, declared
from tests.bench.figures import README
from tests.bench.gvisor import inside, sizes
from tests.bench.gvisor.page import MARKS, between, filled

RUN = {
    "measured": "2026-11-29T01:00+00:00",
    "hardware": {"cpu": "a processor", "cores": 2, "memory_mib": 1024, "kernel": "6.1"},
    "versions": {"kubernetes": "v1.34.4"},
}
PAGE = "".join(f"## {mark}\n<!-- {mark}: begin -->\nold\n<!-- {mark}: end -->\n" for mark in MARKS.values())


def figure(name: str, engine: float, gvisor: float, unit: str = "") -> dict[str, Any]:
    return {"figure": name, "value": gvisor, "unit": unit, "baseline": {"what": "on an engine", "value": engine}}


def test_each_work_is_told_with_how_many_times_longer_it_takes() -> None:
    page = filled(PAGE, {"gvisor_speed": [{**RUN, "figures": [figure("forks", 81.4, 1059.2, "ms")]}]})
    assert "| forks | 81 ms | 1059 ms | 13 |" in page.splitlines()
    assert "Measured on 2026-11-29, 2 cores of a processor, 1024 MiB, Linux 6.1, kubernetes v1.34.4." in page
    assert page.count("old") == 1, "what was not measured stays"


def test_what_programs_see_is_beside_what_they_would_see_without_the_variables() -> None:
    figures = [figure("nproc", 1, 1), figure("MemTotal", 24152, 624, "MiB"), figure(f"nproc{sizes.WITHOUT}", 64, 2)]
    page = filled(PAGE, {"gvisor_sizes": [{**RUN, "figures": figures}]})
    assert "| nproc | 1 | 1 | 64 | 2 |" in page.splitlines()
    assert "| MemTotal | 24152 MiB | 624 MiB |  |  |" in page.splitlines()


def test_a_page_without_a_place_is_refused() -> None:
    with pytest.raises(ValueError, match="no place"):
        between("no marks", "speed", "| a |\n")


def test_all_that_is_measured_is_declared_before() -> None:
    assert set(MARKS) <= set(all_declared())
    assert all(declared("gvisor_speed", name).statistic for name in inside.WORKS)
    assert all(declared("gvisor_sizes", name).statistic for name in sizes.PROCESSORS | sizes.MEMORY)


def test_the_variables_are_those_that_the_sidecar_sets() -> None:
    source = (README.parent / "sidecar" / "src" / "spawner" / "processors.rs").read_text()
    assert [name for name in sizes.VARIABLES if f'"{name}"' not in source] == []
