"""From a spec to create bodies."""

from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from controlplane.cluster import Boot
from controlplane.cluster.engine import network_files
from controlplane.cluster.engine.containers import Host, Image, records_of, sidecar_body, target_body
from controlplane.egress import EgressOptions
from controlplane.model import SandboxSpec

HOST = Host(Path("/run/rb"), "ready.sock", Path("/opt/rollbox-target"), "sha256:side", "inst")
BOOT = Boot("ready-token", "public-key", '{"id":"sb-1"}')
SPEC = SandboxSpec.model_validate(
    {
        "image": "python",
        "env": {"SECRET": "hush"},
        "cpu_millicores": {"request": 250, "limit": 1500},
        "memory_bytes": {"request": 64 << 20, "limit": 256 << 20},
        "pids_limit": 100,
    }
)


def bodies() -> tuple[dict[str, Any], dict[str, Any]]:
    return target_body("sb-1", SPEC, BOOT, HOST, Image("sha256:img", health_check=True)), sidecar_body(
        "sb-1", SPEC, BOOT, HOST
    )


def test_the_limits_of_the_user_are_on_both_with_the_sidecars_own_on_top() -> None:
    target, sidecar = (cast("dict[str, Any]", body["HostConfig"]) for body in bodies())
    assert target["Memory"] == target["MemorySwap"] == 256 << 20
    assert sidecar["Memory"] == sidecar["MemorySwap"] == (256 + 16) << 20
    assert (target["PidsLimit"], sidecar["PidsLimit"]) == (100, 108)
    for limits in (target, sidecar):
        assert limits["NanoCpus"] == 1_500_000_000
        assert limits["CpuShares"] == 256
        assert limits["MemoryReservation"] == 64 << 20


def test_the_target_is_the_users_image_made_to_wait_without_network() -> None:
    target, _ = bodies()
    assert (target["Image"], target["Entrypoint"], target["Cmd"]) == ("sha256:img", ["/dev/rollbox/target"], [])
    assert target["HostConfig"]["NetworkMode"] == "none"
    assert target["HostConfig"]["Binds"] == [
        "/opt/rollbox-target:/dev/rollbox/target:ro",
        *(f"/run/rb/sandboxes/sb-1.etc/{name}:/etc/{name}" for name in ("hostname", "hosts", "resolv.conf")),
    ]
    assert "CapAdd" not in target["HostConfig"]


def test_the_sidecar_has_the_targets_host_name_where_the_engine_does_not_give_it() -> None:
    """Docker gives it, and refuses a body that has one."""
    _, sidecar = bodies()
    assert sidecar["Hostname"] == "sb-1"
    assert "Hostname" not in sidecar_body("sb-1", SPEC, BOOT, replace(HOST, is_docker=True))


def test_the_sidecar_joins_the_target_and_is_not_privileged() -> None:
    _, sidecar = bodies()
    host = sidecar["HostConfig"]
    assert host["PidMode"] == host["NetworkMode"] == "container:rollbox-sb-1-target"
    assert host["CapAdd"] == ["SYS_ADMIN", "SYS_PTRACE", "SYS_CHROOT"]
    assert "Privileged" not in host
    assert host["Binds"] == ["/run/rb/sandboxes/sb-1:/run/rollbox/agent", "/run/rb/ready:/run/rollbox/ready:ro"]
    assert "ROLLBOX_SIDECAR_READY_URL=unix:/run/rollbox/ready/ready.sock" in sidecar["Env"]


def test_both_have_the_name_of_the_sandbox() -> None:
    assert [body["Hostname"] for body in bodies()] == ["sb-1", "sb-1"]


def test_the_files_of_names_tell_the_sandbox_alone(tmp_path: Path) -> None:
    network_files.write(tmp_path / "etc", "sb-1")
    found = {one.name: one.read_text() for one in (tmp_path / "etc").iterdir()}
    assert found == {
        "hostname": "sb-1\n",
        "hosts": "127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n127.0.0.1\tsb-1\n",
        "resolv.conf": "nameserver 127.0.0.1\noptions timeout:1 attempts:1\n",
    }
    assert {one.stat().st_mode & 0o777 for one in (tmp_path / "etc").iterdir()} == {0o644}


def test_the_sidecar_looks_for_the_targets_program() -> None:
    target, sidecar = bodies()
    assert f"ROLLBOX_SIDECAR_TARGET_COMMAND={target['Entrypoint'][0]}" in sidecar["Env"]


def test_the_sidecar_is_told_of_egress_where_it_is_installed() -> None:
    plain, installed = (
        set(cast("list[str]", sidecar_body("sb-1", SPEC, BOOT, host)["Env"]))
        for host in (HOST, replace(HOST, egress=EgressOptions(3128).of_sidecar))
    )
    assert installed - plain == {"ROLLBOX_SIDECAR_EGRESS_PORT=3128", "ROLLBOX_SIDECAR_EGRESS_DNS=1"}
    assert plain <= installed


def test_the_sidecar_is_told_of_an_interpreter_that_is_to_wait() -> None:
    plain, kept = (
        set(cast("list[str]", sidecar_body("sb-1", SPEC, boot, HOST)["Env"]))
        for boot in (BOOT, replace(BOOT, interpreter="python"))
    )
    assert kept - plain == {"ROLLBOX_SIDECAR_INTERPRETER=python"}
    assert plain <= kept


def test_nothing_of_a_sandbox_fills_the_disk_with_logs_or_runs_the_images_health_check() -> None:
    target, sidecar = bodies()
    assert target["HostConfig"]["LogConfig"] == {"Type": "none"}
    assert sidecar["HostConfig"]["LogConfig"]["Config"]["max-size"] == "1m"
    assert target["Healthcheck"] == {"Test": ["NONE"]}
    assert "Healthcheck" not in target_body("sb-1", SPEC, BOOT, HOST, Image("sha256:img"))


def test_records_are_read_from_ids_of_ours_only() -> None:
    ours = [
        {"rollbox.sandbox": "sb-1", "rollbox.record": "r"},
        {"rollbox.sandbox": "sb-1"},
        {"rollbox.sandbox": "sb-2"},
    ]
    strange = [{}, {"rollbox.sandbox": ""}, {"rollbox.sandbox": "../../etc"}, {"rollbox.sandbox": "sb-/../x"}]
    assert records_of([*strange, *ours]) == {"sb-1": "r", "sb-2": ""}


def test_nothing_tells_the_users_environment() -> None:
    assert "hush" not in str(bodies())


@pytest.mark.parametrize("index", [0, 1])
def test_both_carry_the_installation_and_no_restart(index: int) -> None:
    body = bodies()[index]
    assert body["Labels"]["rollbox.installation"] == "inst"
    assert body["Labels"]["rollbox.sandbox"] == "sb-1"
    assert "RestartPolicy" not in body["HostConfig"]
