"""The parts of the test cluster that need no cluster: its processes' records, logs, certificates and images."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster import (
    baseline,
    foreign,
    layout,
    leftovers,
    network,
    processes,
    undo,
    up,
)
from tests.cluster.processes import Program

SLEEP = (sys.executable, "-c", "import time; print('began', flush=True); time.sleep(60)")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Records and logs of this test alone; what it started is ended."""
    monkeypatch.setattr(processes, "RECORDS", tmp_path / "records")
    monkeypatch.setattr(processes, "LOGS", tmp_path / "logs")
    monkeypatch.setattr(processes, "environment", lambda **extra: extra)
    yield tmp_path
    for record in (tmp_path / "records").glob("*.json"):
        processes.stop(record.stem)


def test_a_program_is_started_once_and_stopped(folder: Path) -> None:
    program = Program("sleeper", SLEEP, lambda: True)
    processes.start(program)
    pid = processes.running("sleeper")
    processes.start(program)
    assert pid is not None
    assert processes.running("sleeper") == pid
    processes.stop("sleeper")
    assert processes.running("sleeper") is None
    assert pid not in [child.pid for child in processes._children]


def test_a_record_of_another_process_with_the_same_pid_counts_as_not_running(folder: Path) -> None:
    processes.start(Program("sleeper", SLEEP, lambda: True))
    record = folder / "records/sleeper.json"
    noted = json.loads(record.read_text())
    record.write_text(json.dumps({**noted, "born": "1"}))
    assert processes.running("sleeper") is None
    record.write_text(json.dumps(noted))


def test_only_rules_outside_the_clusters_chains_are_removed_one_by_one() -> None:
    assert undo._leads_to_ours(["-A", "PREROUTING", "-j", "CILIUM_PRE_nat"])
    assert not undo._leads_to_ours(["-A", "CILIUM_PRE_nat", "-j", "RETURN"])
    assert not undo._leads_to_ours(["-A", "FORWARD", "-j", "ACCEPT"])
    assert not undo._leads_to_ours([":CILIUM_PRE_nat", "-"])


@pytest.mark.parametrize(("value", "expected"), [("", None), (str(layout.KUBECONFIG), None), ("/else", "/else")])
def test_another_cluster_is_one_with_another_kubeconfig(
    value: str, expected: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", value)
    assert foreign.given() == expected


def test_a_network_that_is_not_known_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROLLBOX_TEST_CNI", "flannel")
    with pytest.raises(SystemExit, match="cilium or bridge"):
        layout.cni()


def test_a_table_of_iptables_is_the_clusters_only_if_it_was_new_and_is_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "table ip nat {\n chain OUTPUT {\n type nat hook output priority -100; policy accept;\n }\n}"
    monkeypatch.setattr(leftovers, "output", lambda *_: text)
    table = {"family": "ip", "name": "nat"}
    for before, ours in ((["ip filter"], True), (["ip nat"], False)):
        monkeypatch.setattr(baseline, "noted", lambda before=before: {"tables": before})
        assert leftovers._emptied(table) is ours
    monkeypatch.setattr(baseline, "noted", lambda: {"tables": []})
    monkeypatch.setattr(leftovers, "output", lambda *_: f"{text} counter packets 1 bytes 2 jump OTHER")
    assert not leftovers._emptied(table)


def test_after_a_reboot_nothing_of_the_earlier_run_is_believed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    places = {"RUN": tmp_path / "run", "RECORDS": tmp_path / "records", "STATE": tmp_path, "BOOT": tmp_path / "boot"}
    for name, path in places.items():
        monkeypatch.setattr(up, name, path)
    monkeypatch.setattr(network, "CNI_CONF", tmp_path)
    monkeypatch.setattr(baseline, "new_folders", list)
    for folder in ("run", "records"):
        (tmp_path / folder).mkdir()
    kept = (tmp_path / "run/socket", tmp_path / "records/etcd.json", tmp_path / "baseline.json")
    for boot, stays in (("earlier", False), (None, True)):
        if boot:
            places["BOOT"].write_text(boot)
        for path in kept:
            path.parent.mkdir(exist_ok=True)
            path.touch()
        up._after_reboot()
        assert [path.exists() for path in kept] == [stays] * 3
    assert places["RUN"].is_dir()
