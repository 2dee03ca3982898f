"""The input of shells, and the marks that separate their answers from the output of commands. Pure.

A mark is 128 random bits, drawn for one command. The shell gets it in two halves, so that a shell that echoes what it
reads or runs (`set -v`, `set -x`) does not print it whole.

The first half of a mark is also what the processes of the next command have as ROLLBOX_COMMAND_ID among their
variables, by which the sandbox finds them when the command is to be abandoned.

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
from types import MappingProxyType
from typing import NamedTuple

_ASK = """__rollbox_ask() {
{ command printf '%s%d\\n' "$1$2" "$3"; command jobs -p; command printf %s "$1$2"; } >&OUT 2>/dev/null
command printf %s "$1$2" >&ERR
command export ROLLBOX_COMMAND_ID="$1"
case $- in *e*) command return 0;; esac
command return "$3"
}
"""
# Descriptor numbers that scripts rarely use; bash picks free ones itself.
_SH_SETUP = "PS2=\nexec 6>&1 8>&2\n" + _ASK.replace("OUT", "6").replace("ERR", "8")
_ARM = "command trap __rollbox_stop URG"
_BASH_SETUP = (
    "exec {__rollbox_out}>&1 {__rollbox_err}>&2\n"
    # A command may have taken away the trap.
    + _ASK.replace("OUT", '"$__rollbox_out"').replace("ERR", '"$__rollbox_err"').replace("{\n", f"{{\n{_ARM}\n", 1)
    + """__rollbox_leave() { command return 2; }
__rollbox_stop() {
command shopt -s extdebug; command set -o functrace
command trap 'case $BASH_COMMAND in
"__rollbox_ask "*) command trap - DEBUG; command set +o functrace; command shopt -u extdebug;;
*) command break 999 2>/dev/null; __rollbox_leave;;
esac' DEBUG
}
"""
    + f"{_ARM}\n"
)
_QUIET = {"ENV": "", "PS1": "", "PS2": ""}
_TERMINAL_SETUP = (
    "stty -echo 2>/dev/null; %(only)sPS2=; "
    """__rollbox_prompt() { PS1="%(first)s""%(second)s$1:"'$?;'; """
    # A command may have redirected the shell's stderr, where its prompt goes.
    """[ -t 2 ] || PS1='$(command printf %%s "'"$PS1"'" >/dev/tty)'; """
    """command export ROLLBOX_COMMAND_ID="%(first)s$1"; command return "$2"; }; __rollbox_prompt 0 0\n"""
)
# What is typed to it is no history of a person.
_ONLY_BASH = "set +o histexpand; unset PROMPT_COMMAND HISTFILE; "
# A terminal takes lines of 4095 bytes; quoted, a character of a command may take four of its bytes.
_PIECE_CHARS = 250


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
    set_prompt = f"PS1='$({{ command printf {prompt} >&8; }} 2>/dev/null)'"
    setup = f'{_SH_SETUP}__rollbox_prompt() {{ {set_prompt}; return "$1"; }}\n{set_prompt}\n'
    return Dialect(["sh", "-i"], setup, signal.SIGINT, prompt.encode(), _QUIET)


def on_terminal(mark: Mark) -> tuple[Dialect, Dialect]:
    """Bash and sh on a terminal. Their prompt is a mark, with a number and the exit code behind it.

    The number is that of the command, which its processes have as ROLLBOX_COMMAND_ID behind the first half of the mark.
    """
    shells = (["bash", "--norc", "--noprofile", "--noediting", "-i"], _ONLY_BASH), (["sh", "-i"], "")
    bash, sh = (
        Dialect(argv, _TERMINAL_SETUP % {**mark._asdict(), "only": only}, signal.SIGINT, mark.printed, _QUIET)
        for argv, only in shells
    )
    return bash, sh


class Line(NamedTuple):
    """A command, and what holds for it alone.

    Attributes:
        command: what the shell runs.
        cwd: its directory; empty: the shell's.
        env: its variables, over the shell's.
        input_path: the file that it reads, and that is removed before it runs; empty: it reads the end of file.
        lost: what the shell prints on stderr when it cannot enter `cwd`.
    """

    command: str
    cwd: str = ""
    env: Mapping[str, str] = MappingProxyType({})
    input_path: str = ""
    lost: str = ""

    def text(self, *, has_prompt: bool) -> str:
        """Write it: in the shell itself, or where it has a directory or variables of its own in a subshell.

        Args:
            has_prompt: whether the prompt, which a command may have changed, is set again behind it.
        """
        # Not by a function or an alias of that name.
        run = f"\\command eval {quoted(self.command)}"
        if self.cwd or self.env:
            enter = f"CDPATH= command cd -- {quoted(self.cwd)} || {{ command printf {self.lost} >&2; command exit 1; }}"
            variables = [f"command export {name}={quoted(value)}" for name, value in self.env.items()]
            run = f"( {'; '.join([enter] * bool(self.cwd) + variables + [run])} )"
        if self.input_path:
            path = quoted(self.input_path)
            run = f"{{ command rm -f -- {path}; {run}; }} <{path}"
        else:
            run = f"{run} </dev/null"
        return run + ('; __rollbox_prompt "$?"\n' if has_prompt else "\n")


def quoted(text: str) -> str:
    """Quote a text for any shell."""
    return "'" + text.replace("'", "'\\''") + "'"


def mark_request(mark: Mark) -> str:
    """Build the line that makes the shell print mark, exit code, jobs and mark to stdout, and the mark to stderr."""
    return f'{{ __rollbox_ask {mark.first} {mark.second} "$?"; }} 2>/dev/null\n'


def typed(command: str, number: int) -> str:
    """Write a command as it is typed: in lines that a terminal takes, and with a prompt of its own behind it."""
    pieces = [command[at : at + _PIECE_CHARS] for at in range(0, len(command), _PIECE_CHARS)]
    return "\\command eval " + "\\\n".join(map(quoted, pieces)) + f"; {prompt_request(number)}"


def prompt_request(number: int) -> str:
    """Build the line that gives a shell on a terminal another prompt, and keeps the exit code."""
    return f'__rollbox_prompt {number} "$?"\n'


# More than a pipe holds. A shell that has taken it has read all lines before it; before the next line it says nothing.
FILLER = " " * 2**17


def status(report: bytes) -> tuple[int, list[int]]:
    """Read the text between the marks: the exit code and the background processes."""
    code, *jobs = report.decode("ascii", "replace").split()
    return int(code), [int(pid) for pid in jobs]
