"""Starts what is not running, and waits until the cluster does its work."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

from tests.cluster import baseline, certificates, images, layout, network, programs, settings
from tests.cluster.kubectl import kubectl, read
from tests.cluster.layout import CHOSEN, ETC, LOGS, NODE, RUN, STATE
from tests.cluster.processes import RECORDS, NotReadyError, Program, running, say, start, wait_ready
from tests.cluster.toolchain import folders

BOOT = STATE / "boot"


def up() -> None:
    """Bring the cluster up; what runs stays as it is."""
    began = time.monotonic()
    if os.geteuid() != 0:
        raise SystemExit(
            "The cluster needs root: containers, network namespaces and bpf. Or set KUBECONFIG to another."
        )
    folders()
    _same_network()
    _after_reboot()
    baseline.take()
    certificates.issue()
    settings.write()
    if layout.cni() == "cilium":
        network.write_cilium()
    _start_all()
    say(f"cluster: up after {time.monotonic() - began:.0f} s, {layout.cni()} ({STATE})")


def _start_all() -> None:
    _wave(programs.base())
    images.push_own()
    _wave([programs.api()])
    # All at once; but the node becomes Ready only after the network is announced.
    for program in (*programs.controllers(), programs.kubelet(), *network.programs()):
        start(program)
    _wave([*programs.controllers(), *network.programs()])
    network.announce()
    _wave([programs.kubelet()])
    kubectl("apply", "-f", str(ETC / "coredns.yaml"))
    _wait_default_account()
    _wait_dns()


def _wave(wave: list[Program]) -> None:
    for program in wave:
        start(program)
    for program in wave:
        _wait(program)


def _wait(program: Program) -> None:
    began = time.monotonic()
    wait_ready(program)
    if time.monotonic() - began > 2:
        say(f"  {program.name}: ready after {time.monotonic() - began:.0f} s")


def _wait_dns(deadline: float = 120.0) -> None:
    began = time.monotonic()
    while not _dns_ready():
        if time.monotonic() - began > deadline:
            raise NotReadyError(
                kubectl("describe", "pod", "-n", "kube-system", "-l", "k8s-app=kube-dns", check=False)[-2000:]
                + f"\nThe cluster's DNS is not ready after {deadline:.0f} s; logs are in {LOGS}."
            )
        time.sleep(0.2)
    if time.monotonic() - began > 2:
        say(f"  cluster DNS: ready after {time.monotonic() - began:.0f} s")


def _dns_ready() -> bool:
    deployment = read("deployment", "coredns", "-n", "kube-system")
    return bool(deployment and deployment["status"].get("readyReplicas"))


def _wait_default_account(deadline: float = 60.0) -> None:
    """Until the controllers have made it, no pod can be created."""
    ends = time.monotonic() + deadline
    while not read("serviceaccount", "default"):
        if time.monotonic() > ends:
            raise NotReadyError(f"There is no default service account: see {LOGS}/kube-controller-manager.log")
        time.sleep(0.1)


def _same_network() -> None:
    if CHOSEN.exists() and CHOSEN.read_text() != layout.cni():
        raise SystemExit(
            f"The cluster on this machine has the network {CHOSEN.read_text()}, not {layout.cni()}: "
            f"run `python -m tests.cluster down` first, or set ROLLBOX_TEST_CNI={CHOSEN.read_text()}."
        )
    STATE.mkdir(parents=True, exist_ok=True, mode=0o700)
    CHOSEN.write_text(layout.cni())


def _after_reboot() -> None:
    """Nothing of an earlier boot's run folder is true any more."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text()
    if not BOOT.exists() or BOOT.read_text() != boot:
        for folder in (RUN, RECORDS, *map(Path, baseline.new_folders())):
            shutil.rmtree(folder, ignore_errors=True)
        (STATE / "baseline.json").unlink(missing_ok=True)
        network.conflist().unlink(missing_ok=True)
        BOOT.write_text(boot)
    RUN.mkdir(mode=0o700, exist_ok=True)


def status() -> int:
    """One line per process, then the node; 0 when all run."""
    good = True
    for program in programs.every():
        pid = running(program.name)
        ready = bool(pid) and program.ready()
        good = good and ready
        print(f"{program.name:<24} {pid or '-':<8} {'ready' if ready else 'NOT READY'}")
    print(f"node {NODE}, network {CHOSEN.read_text() if CHOSEN.exists() else '-'}, kubeconfig {layout.KUBECONFIG}")
    return 0 if good else 1
