"""What is said to shells, and how their answers are told from what commands print. Pure.

A mark is 128 random bits, made for one command. The shell is told it in two halves, so that a shell that echoes what it
reads or runs (`set -v`, `set -x`) does not print it whole.

Giving up a command that ran too long takes more than killing its processes: the shell would go on with the next one
of the same line. sh is interactive, so an interrupt brings it back to its prompt. bash is not, since it would talk
about jobs in the command's own stderr: there a signal arms a trap that skips every further command and leaves every
loop and function, until the shell is asked again.
"""

from __future__ import annotations

import secrets
import signal
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

_ASK = """__rollbox_ask() {
{ command printf '%s%d\\n' "$1$2" "$3"; jobs -p; command printf %s "$1$2"; } >&OUT 2>/dev/null
command printf %s "$1$2" >&ERR
case $- in *e*) return 0;; esac
return "$3"
}
"""
# Numbers that a script rarely takes for itself; bash finds free ones.
_SH_SETUP = "PS2=\nexec 6>&1 8>&2\n" + _ASK.replace("OUT", "6").replace("ERR", "8")
_BASH_SETUP = (
    "exec {__rollbox_out}>&1 {__rollbox_err}>&2\n"
    + _ASK.replace("OUT", '"$__rollbox_out"').replace("ERR", '"$__rollbox_err"')
    + """__rollbox_leave() { return 2; }
__rollbox_stop() {
shopt -s extdebug; set -o functrace
trap 'case $BASH_COMMAND in
"__rollbox_ask "*) trap - DEBUG; set +o functrace; shopt -u extdebug;;
*) break 999 2>/dev/null; __rollbox_leave;;
esac' DEBUG
}
trap __rollbox_stop URG
"""
)

KILLER = """number=$1 shell=$2; shift 2
kept=" $* " found=
kill -STOP "$shell"
while :; do
  fresh=
  for folder in /proc/[0-9]*; do
    pid=${folder#/proc/}
    case "$kept$found " in *" $pid "*) continue;; esac
    parent=
    { while read -r name value; do
      case $name in PPid:) parent=$value; break;; esac
    done <"$folder/status"; } 2>/dev/null
    case " $shell$found$fresh " in *" $parent "*) fresh="$fresh $pid";; esac
  done
  [ "$fresh" ] || break
  kill -STOP $fresh 2>/dev/null
  found="$found$fresh"
done
[ "$found" ] && kill -KILL $found 2>/dev/null
kill "-$number" "$shell"
kill -CONT "$shell"
"""
"""`sh -c KILLER sh SIGNAL PID KEPT...`: kills all that descends from a shell, but for what was there before, and
signals the shell. By /proc alone, with what every shell has built in. All is stopped before the first dies: a child
whose parent is gone is nobody's descendant."""


class Mark(NamedTuple):
    """A mark in two halves."""

    first: str
    second: str

    @classmethod
    def fresh(cls) -> Mark:
        """Draw one."""
        return cls(secrets.token_hex(8), secrets.token_hex(8))

    @property
    def seen(self) -> bytes:
        """As the shell prints it."""
        return f"{self.first}{self.second}".encode()


@dataclass(frozen=True)
class Dialect:
    """A kind of shell.

    Attributes:
        argv, env: how it is started.
        setup: what it reads first.
        signal: makes it give up a command whose processes are dead.
        prompt: what it prints on stderr when it is ready; empty when it prints nothing.
    """

    argv: list[str]
    setup: str
    signal: int
    prompt: bytes = b""
    env: Mapping[str, str] = field(default_factory=dict)


BASH = Dialect(["bash", "--norc", "--noprofile"], _BASH_SETUP, signal.SIGURG)


def posix(prompt: str) -> Dialect:
    """A shell that knows no more than POSIX, with a prompt to know it by."""
    # Through a descriptor of its own: a command may have redirected stderr for good.
    setup = f"{_SH_SETUP}PS1='$({{ printf {prompt} >&8; }} 2>/dev/null)'\n"
    return Dialect(["sh", "-i"], setup, signal.SIGINT, prompt.encode(), {"ENV": "", "PS1": "", "PS2": ""})


def run(command: str) -> str:
    """Write the line that runs a command in the shell itself, with nothing to read."""
    quoted = command.replace("'", "'\\''")
    return f"eval '{quoted}' </dev/null\n"


def ask(mark: Mark) -> str:
    """Write the line that has the shell print, after all that came before: mark, exit code, jobs, mark; mark."""
    return f'{{ __rollbox_ask {mark.first} {mark.second} "$?"; }} 2>/dev/null\n'


def status(told: bytes) -> tuple[int, list[str]]:
    """Read what stands between the marks: the exit code and the processes in the background."""
    code, *jobs = told.decode("ascii", "replace").split()
    return int(code), jobs
