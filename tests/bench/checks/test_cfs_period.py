"""A pod's limit of the processor is rewritten to another period with the same share."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bench.cluster import neighbour
from tests.bench.cluster.neighbour import control_groups, with_period

V1 = ("cpu.cfs_quota_us", "cpu.cfs_period_us")


def group(path: Path, **files: object) -> Path:
    path.mkdir(parents=True)
    for name, value in files.items():
        (path / name.replace("__", ".")).write_text(f"{value}\n")
    return path


@pytest.mark.parametrize(("quota_us", "period_us", "share"), [(5000, 10_000, "50000"), (250_000, 50_000, "500000")])
def test_both_versions_of_control_groups_get_the_same_share(
    tmp_path: Path, quota_us: int, period_us: int, share: str
) -> None:
    one = group(tmp_path / "1", cpu__cfs_quota_us=quota_us, cpu__cfs_period_us=period_us)
    two = group(tmp_path / "2", cpu__max=f"{quota_us} {period_us}")
    assert with_period(one, 100_000)
    assert with_period(two, 100_000)
    assert [(one / name).read_text() for name in V1] == [share, "100000"]
    assert (two / "cpu.max").read_text() == f"{share} 100000"


def test_a_group_without_a_quota_stays_as_it_is(tmp_path: Path) -> None:
    one = group(tmp_path / "1", cpu__cfs_quota_us=-1, cpu__cfs_period_us=100_000)
    two = group(tmp_path / "2", cpu__max="max 100000")
    assert not with_period(one, 10_000)
    assert not with_period(two, 10_000)
    assert (one / V1[1]).read_text() == "100000\n"
    assert (two / "cpu.max").read_text() == "max 100000\n"


@pytest.mark.parametrize("name", ["pod12-34", "kubepods-burstable-pod12_34.slice"])
def test_the_groups_of_a_pod_are_found_from_the_top(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(neighbour, "HIERARCHIES", (tmp_path / "none", tmp_path))
    pod = group(tmp_path / "kubepods" / "burstable" / name)
    containers = [group(pod / container) for container in ("a", "b")]
    group(tmp_path / "kubepods" / "burstable" / "pod99-99" / "c")
    assert control_groups("12-34") == [pod, *containers]
