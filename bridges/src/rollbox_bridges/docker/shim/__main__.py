"""`rollbox-docker`: which command is called, with which options."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from typing import Any, Final

from rollbox_bridges.docker.shim import creating, looking, running
from rollbox_bridges.docker.shim.calling import Daemon, DaemonError, name

_Command = Callable[[Daemon, argparse.Namespace], int]
_INTERRUPTED: Final = 130
_GROUPS: Final = frozenset({"container", "image", "buildx", "builder"})
_OTHER_NAMES: Final = {"ls": "ps", "list": "ps", "remove": "rm"}
_OF_IMAGES: Final = {"ls": "images", "list": "images", "rm": "rmi", "inspect": "inspect"}


def main(words: list[str] | None = None) -> None:
    """Run one command, and exit with its code."""
    given = parser().parse_args(_flat(sys.argv[1:] if words is None else words))
    try:
        code = given.run(Daemon((given.host or "").removeprefix("unix://")), given)
        sys.stdout.flush()
    except (DaemonError, ValueError, OSError) as error:
        sys.stderr.write(f"{error}\n")
        code = 1
    except KeyboardInterrupt:
        code = _INTERRUPTED
    sys.exit(code)


def parser() -> argparse.ArgumentParser:
    """The parser of all commands."""
    made = argparse.ArgumentParser(prog="rollbox-docker", description="Docker's commands over a bridge.")
    made.add_argument("-H", "--host", help="unix://PATH; else DOCKER_HOST, else the bridge's default socket.")
    commands = made.add_subparsers(required=True, metavar="COMMAND")

    def add(word: str, run: _Command, **options: Any) -> argparse.ArgumentParser:  # noqa: ANN401 - argparse's
        one = commands.add_parser(word, help=run.__doc__, allow_abbrev=False, **options)
        one.set_defaults(run=run)
        return one

    _of_commands(add)
    _of_containers(add)
    _of_images(add)
    _of_builds(add)
    return made


def _of_commands(add: Callable[..., argparse.ArgumentParser]) -> None:
    run = add("run", running.run, add_help=False)
    run.add_argument("-d", "--detach", action="store_true")
    creating.add_options(run)
    creating.add_options(add("create", running.create, add_help=False))
    start = add("start", running.start)
    start.add_argument("-a", "--attach", action="store_true")
    start.add_argument("-i", "--interactive", action="store_true")
    start.add_argument("containers", nargs="+")
    one = add("exec", running.exec_)
    for short, long in (("-d", "--detach"), ("-i", "--interactive"), ("-t", "--tty")):
        one.add_argument(short, long, action="store_true")
    one.add_argument("--privileged", action="store_true")
    one.add_argument("-u", "--user", default="")
    one.add_argument("-w", "--workdir", default="")
    one.add_argument("-e", "--env", action="append", default=[], metavar="K[=V]")
    one.add_argument("--env-file", action="append", default=[], metavar="FILE")
    one.add_argument("container")
    one.add_argument("command", nargs=argparse.REMAINDER)


def _of_containers(add: Callable[..., argparse.ArgumentParser]) -> None:
    stop, restart = add("stop", looking.each), add("restart", looking.each)
    for one, path in ((stop, "stop"), (restart, "restart")):
        one.add_argument("-t", "--time", "--timeout", type=int)
        one.add_argument("-s", "--signal")
        one.set_defaults(
            call=lambda g, path=path: ("POST", f"/containers/{{}}/{path}", {"t": g.time, "signal": g.signal})
        )
    kill = add("kill", looking.each)
    kill.add_argument("-s", "--signal", default="KILL")
    kill.set_defaults(call=lambda given: ("POST", "/containers/{}/kill", {"signal": given.signal}))
    remove = add("rm", looking.each)
    remove.add_argument("-f", "--force", action="store_true")
    remove.add_argument("-v", "--volumes", action="store_true")
    remove.set_defaults(call=lambda given: ("DELETE", "/containers/{}", {"force": int(given.force)}))
    for one in (stop, restart, kill, remove, add("wait", looking.wait)):
        one.add_argument("containers", nargs="+")
    copy = add("cp", _copy)
    copy.add_argument("source")
    copy.add_argument("target")
    rename = add("rename", _rename)
    rename.add_argument("container")
    rename.add_argument("name")
    logs = add("logs", looking.logs)
    logs.add_argument("-f", "--follow", action="store_true")
    logs.add_argument("-n", "--tail", default="all")
    logs.add_argument("-t", "--timestamps", action="store_true")
    logs.add_argument("container")
    ps = add("ps", looking.ps)
    ps.add_argument("-a", "--all", action="store_true")
    ps.add_argument("-f", "--filter", action="append", default=[])
    _listing(ps)


def _of_images(add: Callable[..., argparse.ArgumentParser]) -> None:
    inspect = add("inspect", looking.inspect)
    inspect.add_argument("-f", "--format", default="")
    inspect.add_argument("--type", choices=("container", "image"))
    inspect.add_argument("names", nargs="+")
    images = add("images", looking.images)
    images.add_argument("-a", "--all", action="store_true")
    images.add_argument("repository", nargs="?")
    _listing(images)
    pull = add("pull", looking.pulled)
    pull.add_argument("-q", "--quiet", action="store_true")
    pull.add_argument("--platform")
    pull.add_argument("image")
    remove = add("rmi", looking.each)
    remove.add_argument("-f", "--force", action="store_true")
    remove.add_argument("containers", nargs="+", metavar="image")
    remove.set_defaults(call=lambda given: ("DELETE", "/images/{}", {"force": int(given.force)}))
    commit = add("commit", _commit)
    commit.add_argument("container")
    commit.add_argument("repository", nargs="?", default="")
    version = add("version", looking.version)
    version.add_argument("-f", "--format", default="")
    add("info", looking.info)
    add("compose", _compose, add_help=False, prefix_chars="\0").add_argument("words", nargs="*")


def _of_builds(add: Callable[..., argparse.ArgumentParser]) -> None:
    build = add("build", _build)
    build.add_argument("-t", "--tag", action="append", default=[])
    build.add_argument("-f", "--file", default="")
    build.add_argument("-q", "--quiet", action="store_true")
    for several in ("--build-arg", "--label"):
        build.add_argument(several, action="append", default=[], metavar="K=V")
    for text in ("--target", "--platform", "--network", "--iidfile", "--progress", "--output"):
        build.add_argument(text, default="")
    for flag in ("--no-cache", "--pull", "--rm", "--force-rm", "--load", "--push"):
        build.add_argument(flag, action="store_true")
    build.add_argument("context", metavar="PATH|-")


def _listing(one: argparse.ArgumentParser) -> None:
    one.add_argument("-q", "--quiet", action="store_true")
    one.add_argument("--no-trunc", action="store_true")
    one.add_argument("--format", default="")


def _copy(daemon: Daemon, given: argparse.Namespace) -> int:
    """Copy files into a container or out of it."""
    # Not needed for the commands that are called most.
    from rollbox_bridges.docker.shim.copying import copy  # noqa: PLC0415

    copy(daemon, given.source, given.target)
    return 0


def _rename(daemon: Daemon, given: argparse.Namespace) -> int:
    """Give a container another name."""
    daemon.call("POST", f"/containers/{name(given.container)}/rename", {"name": given.name})
    return 0


def _build(daemon: Daemon, given: argparse.Namespace) -> int:
    """Build an image from a Dockerfile."""
    # As for `cp`.
    from rollbox_bridges.docker.shim.building import build  # noqa: PLC0415

    return build(daemon, given)


def _compose(_: Daemon, given: argparse.Namespace) -> int:
    """Refused: there are no networks and volumes of several containers."""
    raise DaemonError(
        0,
        f"`compose {' '.join(given.words)[:200]}` is not supported: each container is a sandbox of its own, without "
        "networks or volumes that several have. Run the containers one by one.",
    )


def _commit(daemon: Daemon, given: argparse.Namespace) -> int:
    """Make an image of a container's files."""
    query = {"container": given.container, "repo": given.repository}
    sys.stdout.write(daemon.call("POST", "/commit", query)["Id"] + "\n")
    return 0


def _flat(words: list[str]) -> list[str]:
    """The words of a command without its group: `container ls` is `ps`."""
    if len(words) < 2 or words[0] not in _GROUPS:
        return words
    named = _OTHER_NAMES if words[0] == "container" else _OF_IMAGES
    typed = ["--type", words[0]] if words[1] == "inspect" else []
    return [named.get(words[1], words[1]), *typed, *words[2:]]


if __name__ == "__main__":
    main()
