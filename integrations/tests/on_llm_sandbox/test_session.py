"""llm-sandbox's contract of a session: code, commands, libraries, files, artefacts and what stays between runs."""

from __future__ import annotations

import base64
import io
import tarfile
from pathlib import Path
from typing import Any

import pytest
from llm_sandbox import ArtifactSandboxSession, SandboxSession
from llm_sandbox.backends import get_backend
from llm_sandbox.exceptions import (
    CommandEmptyError,
    CommandFailedError,
    LanguageNotSupportedError,
    LibraryInstallationNotSupportedError,
    NotOpenSessionError,
    SandboxTimeoutError,
    SecurityError,
    ValidationError,
)

from interrupts import interrupted
from on_llm_sandbox.conftest import IMAGE, made
from rollbox.sync import Client, Sandbox
from rollbox_integrations.llm_sandbox import CommandTimeoutError, RollboxSession, SandboxUnavailable

# A pip, of which the image has none: it makes a module of what it is asked for.
PIP = """
import pathlib, sys
library = sys.argv[sys.argv.index("install") + 1]
if library.startswith("no-such"):
    sys.exit(f"ERROR: No matching distribution found for {library}")
pathlib.Path("/tmp/pip", library.replace("-", "_") + ".py").write_text("VALUE = 42")
"""
# Where llm-sandbox's own code, which it puts before that of a run, leaves the figures of matplotlib.
PLOTS = "/tmp/sandbox_plots"
PICTURE = b"\x89PNG\r\n\x1a\n"
DRAWS = f"import os\nos.makedirs('{PLOTS}', exist_ok=True)\nopen('{PLOTS}/000001.png', 'wb').write({PICTURE!r})"


def with_pip(**given: Any) -> dict[str, Any]:
    return {"files": {"/tmp/pip/pip.py": PIP}, "env": {"PYTHONPATH": "/tmp/pip"}, **given}


def test_code_and_commands_have_their_outputs_and_their_codes(session: RollboxSession) -> None:
    told = session.run("import sys\nprint('out')\nprint('err', file=sys.stderr)\nsys.exit(3)")
    assert (told.stdout, told.stderr, told.exit_code) == ("out\n", "err\n", 3)
    told = session.execute_command("pwd; echo $PYTHONUNBUFFERED", workdir="/usr")
    assert (told.stdout, told.exit_code) == ("/usr\n1\n", 0)
    assert session.execute_commands(["true", ("exit 4", None), "echo no"]).exit_code == 4
    assert session.execute_command("kill -9 $$").exit_code == 137
    with pytest.raises(CommandEmptyError):
        session.execute_command("")


def test_nothing_is_created_before_it_is_open(client: Client) -> None:
    session = made()
    with pytest.raises(NotOpenSessionError):
        session.run("1")
    with session:
        assert session.run("print(1)").success()
    with pytest.raises(NotOpenSessionError):
        session.run("1")
    session.close()


def test_output_is_told_as_it_comes_and_the_code_is_true(session: RollboxSession) -> None:
    """That of llm-sandbox's Docker is 0 whatever happens, where output is told."""
    here: list[str] = []
    there: list[str] = []
    code = "import sys\nprint('\u4e16\u754c')\nprint('err', file=sys.stderr)\nsys.exit(3)"
    told = session.run(code, on_stdout=here.append, on_stderr=there.append)
    assert ("".join(here), "".join(there), told.exit_code) == ("\u4e16\u754c\n", "err\n", 3)
    assert (told.stdout, told.stderr) == ("\u4e16\u754c\n", "err\n")


def test_who_listens_may_answer_while_it_runs(session: RollboxSession) -> None:
    """The command goes on when it sees the answer."""

    def answer(text: str) -> None:
        if "ready" in text:
            assert session.container is not None
            session.container.files.write("/tmp/answer", "yes")

    waits = "echo ready; until [ -e /tmp/answer ]; do sleep 0.1; done; cat /tmp/answer"
    assert session.execute_command(waits, on_stdout=answer).stdout == "ready\nyes"


def test_an_error_of_who_listens_kills_the_command(session: RollboxSession) -> None:
    def fail(_: str) -> None:
        raise LookupError("no place for it")

    with pytest.raises(LookupError):
        session.execute_command("echo a; sleep 361", on_stdout=fail)
    assert session.execute_command("pgrep -fx 'sleep 361'").exit_code == 1


def test_of_a_long_output_the_end_is_kept(session: RollboxSession) -> None:
    many = "head -c 40000000 /dev/zero | tr '\\0' x; echo end"
    assert session.execute_command(many).stdout[-5:] == "xend\n"
    assert len(session.execute_command(many).stdout) == 16 << 20
    assert len(session.execute_command(many, on_stderr=print).stdout) == 16 << 20


def test_a_deadline_kills_the_code_and_the_session_goes_on(session: RollboxSession) -> None:
    code = "import subprocess\nprint('begun')\nsubprocess.run(['sleep', '362'])"
    for options in ({}, {"on_stdout": print}):
        with pytest.raises(CommandTimeoutError, match="timed out after 5 seconds") as late:
            session.run(code, timeout=5, **options)
        assert (late.value.stdout, late.value.timeout_duration) == ("begun\n", 5)
    assert session.execute_command("pgrep -fx 'sleep 362'").exit_code == 1
    with made(execution_timeout=3.0) as other, pytest.raises(SandboxTimeoutError, match="after 3 seconds"):
        other.run("while True: pass")


def test_a_session_that_is_over_says_so(client: Client) -> None:
    with made(session_timeout=5.0) as session, pytest.raises(SandboxTimeoutError, match="maximum lifetime of 5"):
        session.execute_command("sleep 363")


def test_code_that_is_interrupted_stops(session: RollboxSession) -> None:
    assert session.container is not None
    with interrupted(session.container):
        session.run("import subprocess\nopen('/tmp/started', 'w').close()\nsubprocess.run(['sleep', '364'])")
    while session.execute_command("pgrep -fx 'sleep 364'").exit_code == 0:
        pass


def test_libraries_are_installed_before_and_with_a_run(client: Client) -> None:
    with made(**with_pip()) as session:
        assert session.run("import tidy_lib").exit_code == 1
        assert session.run("import tidy_lib; print(tidy_lib.VALUE)", libraries=["tidy-lib"]).stdout == "42\n"
        with pytest.raises(CommandFailedError, match="no-such-lib"):
            session.install(["no-such-lib"])
    with made(**with_pip(libraries=["tidy-lib"])) as session:
        assert session.run("import tidy_lib; print(tidy_lib.VALUE)").stdout == "42\n"
    with pytest.raises(CommandFailedError, match="no-such-lib"):
        made(**with_pip(libraries=["no-such-lib"])).open()
    with made(skip_environment_setup=True) as session, pytest.raises(LibraryInstallationNotSupportedError):
        session.install(["tidy-lib"])


def test_files_and_folders_go_both_ways(session: RollboxSession, tmp_path: Path) -> None:
    (tmp_path / "tree/below").mkdir(parents=True)
    (tmp_path / "tree/below/a.bin").write_bytes(b"\xff\x00")
    (tmp_path / "empty").touch()
    session.copy_to_runtime(str(tmp_path / "tree"), "/made/new/tree")
    session.copy_to_runtime(str(tmp_path / "empty"), "/made/empty")
    session.copy_from_runtime("/made/new/tree", str(tmp_path / "back"))
    session.copy_from_runtime("/made/empty", str(tmp_path / "deep/empty"))
    assert (tmp_path / "back/tree/below/a.bin").read_bytes() == b"\xff\x00"
    assert (tmp_path / "deep/empty").read_bytes() == b""
    bits, stat = session.get_archive("/made/new/tree/below/a.bin")
    with tarfile.open(fileobj=io.BytesIO(bits)) as tar:
        assert [(one.name, one.size) for one in tar] == [("a.bin", stat["size"])] == [("a.bin", 2)]
    assert session.get_archive("/no/such") == (b"", {"size": 0})
    with tarfile.open(fileobj=io.BytesIO(session.get_archive("/made/new/tree")[0])) as tar:
        assert tar.getnames() == ["tree", "tree/below", "tree/below/a.bin"]
    for source, target in (("/no/such", "/a"), (str(tmp_path / "none"), "/a")):
        with pytest.raises(FileNotFoundError):
            session.copy_from_runtime(source, str(tmp_path / "x"))
        with pytest.raises(FileNotFoundError):
            session.copy_to_runtime(source, target)
    with pytest.raises(SecurityError):
        session.copy_to_runtime(str(tmp_path / "empty"), "/made/../etc/a")


def test_what_code_draws_is_an_artefact(client: Client) -> None:
    with ArtifactSandboxSession(backend="rollbox", image=IMAGE, egress="offline", memory="256Mi") as session:
        told = session.run(DRAWS)
        assert (told.exit_code, [base64.b64decode(one.content_base64) for one in told.plots]) == (0, [PICTURE])
        assert session.run("1", clear_plots=True).plots == []


def test_a_sandbox_that_was_there_before_stays(client: Client) -> None:
    with Sandbox.create(IMAGE, memory="256Mi", egress="offline") as there:
        with made(container_id=there.id) as session:
            assert session.execute_command("mkdir /sandbox").exit_code == 0
            assert session.run("print(1)").stdout == "1\n"
        assert there.exec("true").ok


def test_dockers_names_of_limits_hold_here_too(client: Client) -> None:
    limits = {"mem_limit": "300m", "cpu_count": 1, "user": 1000, "environment": ["A=b"], "network_mode": "none"}
    given: dict[str, Any] = {"image": IMAGE, "backend": "rollbox", "workdir": "/tmp/work", "runtime_configs": limits}
    with SandboxSession(**given) as session:
        assert session.run("import os; print(os.getuid(), os.environ['A'])").stdout == "1000 b\n"
        assert session.container.refresh().memory_bytes.limit == 300 << 20


def test_a_dockerfile_is_built(client: Client, tmp_path: Path) -> None:
    (tmp_path / "Dockerfile").write_text(f"FROM {IMAGE}\nRUN echo built > /built\n")
    with made(image=None, dockerfile=str(tmp_path / "Dockerfile")) as session:
        assert session.execute_command("cat /built").stdout == "built\n"
    (tmp_path / "Dockerfile").write_text(f"FROM {IMAGE}\nRUN exit 5\n")
    with pytest.raises(ValidationError, match=r"build_failed \(.*; score the sample\)"):
        made(image=None, dockerfile=str(tmp_path / "Dockerfile")).open()


def test_what_is_asked_wrong_is_told_before_anything_is_created(client: Client) -> None:
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"memroy": 1}, "memroy: no argument of a session"),
        ({"client": object()}, "client: no argument of a session"),
        ({"commit_container": True}, "session.container.commit"),
        ({"runtime_configs": {"privileged": True}}, "runtime_configs has privileged"),
        ({"runtime_configs": {"mem_limit": "much"}}, "mem_limit: 'much'"),
        ({"runtime_configs": {"network_mode": "host"}}, "network_mode 'host'"),
    ]
    for given, why in wrong:
        with pytest.raises(ValidationError, match=why):
            made(**given)
    with pytest.raises(ValidationError, match="does not support container pooling"):
        SandboxSession(backend="rollbox", pool=object())  # type: ignore[arg-type]
    assert get_backend("rollbox").capabilities.container_images


def test_variables_stay_in_an_interactive_session(client: Client) -> None:
    heard: list[str] = []
    with made("rollbox-interactive", **with_pip()) as session:
        assert session.run("x = 6\nprint('out')").stdout == "out\n"
        assert session.run("x * 7", on_stdout=heard.append).stdout == "Out[2]: 42\n"
        failed = session.run("print('a')\n1 / 0", on_stdout=heard.append)
        assert (failed.exit_code, "ZeroDivisionError" in failed.stderr, heard) == (1, True, ["a\n"])
        assert session.run("import tidy_lib; tidy_lib.VALUE", libraries=["tidy-lib"]).stdout.endswith("]: 42\n")
        with pytest.raises(SandboxTimeoutError, match="after 3 seconds; variables are kept"):
            session.run("while True: pass", timeout=3)
        assert session.run("print(x)").stdout == "6\n"
        died = session.run("import os; os._exit(1)")
        assert (died.exit_code, "variables are lost" in died.stderr) == (137, True)
        assert session.run("import tidy_lib; print(tidy_lib.VALUE)").stdout == "42\n"
    with pytest.raises(LanguageNotSupportedError):
        made("rollbox-interactive", lang="javascript").open()


def test_a_sandbox_somebody_deleted_is_gone_for_every_call(
    session: RollboxSession, client: Client, tmp_path: Path
) -> None:
    assert session.container is not None
    (tmp_path / "a").touch()
    client.delete(session.container.id)
    for call in (
        lambda: session.run("1"),
        lambda: session.execute_command("true", on_stdout=print),
        lambda: session.copy_to_runtime(str(tmp_path / "a"), "/a"),
        lambda: session.copy_from_runtime("/etc/hostname", str(tmp_path / "b")),
        lambda: session.get_archive("/etc/hostname"),
    ):
        with pytest.raises(SandboxUnavailable, match=r"deleted \(caller; mask the sample\): "):
            call()


def test_the_container_tools_of_the_image_are_not_needed(session: RollboxSession, tmp_path: Path) -> None:
    session.execute_command("rm -f $(which tar base64 mkdir)")
    (tmp_path / "a").write_text("text")
    session.copy_to_runtime(str(tmp_path / "a"), "/made/deep/a")
    session.copy_from_runtime("/made/deep/a", str(tmp_path / "b"))
    assert (tmp_path / "b").read_text() == "text"
    assert session.run("print(1)").stdout == "1\n"
