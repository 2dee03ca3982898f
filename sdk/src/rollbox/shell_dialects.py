"""The input of shells, and the marks that separate their answers from the output of commands. Pure.

A mark is 128 random bits, drawn for one command. The shell gets it in two halves, so that a shell that echoes what it
reads or runs (`set -v`, `set -x`) does not print it whole.

Aborting a command that ran too long takes more than killing its processes: the shell would go on with the next command
of the same line. sh runs interactively, so SIGINT brings it back to its prompt. bash does not, since it would print
messages about jobs into the command's stderr: there SIGURG arms a DEBUG trap that skips every further command and
leaves every loop and function, until the shell gets the next request for a mark.
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
# Descriptor numbers that scripts rarely use; bash picks free ones itself.
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
"""`sh -c KILLER sh SIGNAL PID KEPT...`: kills all descendants of a shell except the KEPT processes, and signals the
shell. Needs only /proc and what every shell has built in. All are stopped before the first is killed: a child whose
parent has died is not found as a descendant."""


class Mark(NamedTuple):
    """A mark in two halves."""

    first: str
    second: str

    @classmethod
    def fresh(cls) -> Mark:
        """Draw a new mark."""
        return cls(secrets.token_hex(8), secrets.token_hex(8))

    @property
    def printed(self) -> bytes:
        """As the shell prints it."""
        return f"{self.first}{self.second}".encode()


@dataclass(frozen=True)
class Dialect:
    """A kind of shell.

    Attributes:
        argv, env: how it is started.
        setup: its first input.
        signal: makes it abandon a command whose processes were killed.
        prompt: what it prints on stderr when it is ready; empty when it prints nothing.
    """

    argv: list[str]
    setup: str
    signal: int
    prompt: bytes = b""
    env: Mapping[str, str] = field(default_factory=dict)


BASH = Dialect(["bash", "--norc", "--noprofile"], _BASH_SETUP, signal.SIGURG)


def posix(prompt: str) -> Dialect:
    """A POSIX shell, whose prompt shows that it is ready."""
    # Through a descriptor of its own: a command may have redirected the shell's stderr.
    set_prompt = f"PS1='$({{ printf {prompt} >&8; }} 2>/dev/null)'"
    setup = f'{_SH_SETUP}__rollbox_prompt() {{ {set_prompt}; return "$1"; }}\n{set_prompt}\n'
    return Dialect(["sh", "-i"], setup, signal.SIGINT, prompt.encode(), {"ENV": "", "PS1": "", "PS2": ""})


def run(command: str, *, has_prompt: bool) -> str:
    """Build the line that runs a command in the shell itself, with an empty stdin.

    Args:
        command: what it runs.
        has_prompt: whether the prompt, which a command may have changed, is set again behind it.
    """
    quoted = command.replace("'", "'\\''")
    after = '; __rollbox_prompt "$?"' if has_prompt else ""
    return f"eval '{quoted}' </dev/null{after}\n"


def mark_request(mark: Mark) -> str:
    """Build the line that makes the shell print mark, exit code, jobs and mark to stdout, and the mark to stderr."""
    return f'{{ __rollbox_ask {mark.first} {mark.second} "$?"; }} 2>/dev/null\n'


def status(report: bytes) -> tuple[int, list[str]]:
    """Read the text between the marks: the exit code and the background processes."""
    code, *jobs = report.decode("ascii", "replace").split()
    return int(code), jobs
