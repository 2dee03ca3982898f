"""Commands that change the shell that runs them, and what becomes of it in each shell."""

from __future__ import annotations

from typing import NamedTuple

from rollbox import Shell, TerminalShell
from rollbox.errors import Conflict

ANSWERS, ENDS, SILENT, WAITS, REPLACED = "answers", "ends", "no longer answers", "waits", "replaced"
_WORDS = {"a": ANSWERS, "e": ENDS, "n": SILENT, "w": WAITS, "r": REPLACED}


class Kind(NamedTuple):
    """A shell: bash or sh, on a terminal or not."""

    bash: bool
    terminal: bool

    def __str__(self) -> str:
        return f"{'bash' if self.bash else 'sh'}-{'terminal' if self.terminal else 'pipes'}"


# bash and sh on pipes, bash and sh on a terminal: what becomes of each, by its first letter.
KINDS = (Kind(True, False), Kind(False, False), Kind(True, True), Kind(False, True))
INPUTS = {
    "command() { :; }": "nnnn",
    "command() { echo replaced; }": "nnnn",
    "printf() { :; }; eval() { :; }; read() { :; }; kill() { :; }": "a-a-",
    "trap() { :; }; return() { :; }; unset() { :; }; export() { :; }; set() { :; }": "a-a-",
    "printf() { :; }; read() { :; }; kill() { :; }; test() { :; }": "aaaa",
    "builtin() { :; }; declare() { :; }; [() { echo replaced; }": "a-a-",
    "enable -n command": "n-n-",
    "enable -n eval": "n-n-",
    "alias command=false eval=false printf=false": "-n-a",
    "alias ls=false; shopt -s expand_aliases extglob nullglob failglob": "a-a-",
    "set -n": "nnan",
    "set -u -f -a -b -C": "aaaa",
    "set -m": "aaaa",
    "set -k": "a-a-",
    "set -x": "aaaa",
    "set -v": "aaaa",
    "set -xv": "aaaa",
    "set -o posix -o pipefail": "a-a-",
    "set -e; false": "eeee",
    "set -t": "e-e-",
    "PS1='(venv) $ ' PS2='> ' PS4='+ line '": "aaaa",
    "PS0='before ' PROMPT_COMMAND=false": "a-a-",
    "readonly PS2=x PROMPT_COMMAND=true": "aaaa",
    "readonly PS1=": "annn",
    "readonly IFS=x": "aaaa",
    "IFS=0123456789abcdef:": "aaaa",
    "export LANG=none LC_ALL=none BASH_ENV=/none ENV=/none POSIXLY_CORRECT=1": "aaaa",
    "unset PS1 PS2 PS4 ENV; unset -v ROLLBOX_COMMAND_ID": "aaaa",
    "trap 'false' DEBUG ERR RETURN": "a-a-",
    "shopt -s extdebug; trap false DEBUG": "n-n-",
    "trap 'exit 3' DEBUG": "e-e-",
    "trap 'echo bye' EXIT": "aaaa",
    "trap '' URG HUP USR1": "aaaa",
    "trap '' INT; true": "aann",
    "trap ':' INT": "aa--",
    "exec true": "eeee",
    "exec cat": "eerr",
    "exec sh": "eerr",
    "exec /not/there": "eeae",
    "exec 2>&-": "aaaa",
    "exec 2>/dev/null": "aaaa",
    "exec 6>&- 8>&-": "anaa",
    "exec <&-": "aaee",
    "ulimit -n 3": "nnnn",
    "ulimit -f 0": "aaaa",
    "stty raw -echo": "aaaa",
    "stty cols 10 rows 2; stty -isig": "aaaa",
    "sleep 0.1 & fg": "aaaa",
    "sleep 10000 & disown; wait %1": "a-a-",
    "d=$(mktemp -d) && cd $d && rmdir $d && pwd": "aaaa",
    "cat <<end\nunfinished": "aaaa",
    "echo 'a": "aaaa",
    "if true; then (": "aaaa",
    "printf '\\377\\376\\000\\n'": "aaaa",
    "# nothing": "aaaa",
    "kill -TERM $$": "eaaa",
    "kill -9 $$": "eeee",
    "env -i sh -c true": "aaaa",
    "exit 3": "eeee",
    "read x": "aaww",
    "cat": "aaww",
    "sh": "aaww",
    "su -s /bin/sh root": "aaww",
}


def expected(kind: Kind) -> dict[str, str]:
    """Say what becomes of a shell of this kind, by input; without those that it does not know."""
    place = KINDS.index(kind)
    return {command: _WORDS[marks[place]] for command, marks in INPUTS.items() if marks[place] != "-"}


async def outcome(shell: Shell | TerminalShell, command: str, limit_s: float) -> str:
    """Run an input and say what became of the shell: one of the words above, or what is wrong.

    Args:
        shell: a fresh one.
        command: the input.
        limit_s: how long a command that would run for hours is left alone.
    """
    try:
        first = await shell.run(command, timeout=limit_s if INPUTS[command].endswith("w") else None)
        if first.shell_ended:
            return ENDS
        wrong = await _wrong(shell, limit_s)
        await shell.run("true")
    except Conflict as refused:
        told = {"replaced it by": REPLACED, SILENT: SILENT, "has ended: it exited": ENDS}
        return next((what for text, what in told.items() if text in refused.detail), f"unexpected: {refused}")
    return wrong or (WAITS if first.timed_out else ANSWERS)


async def _wrong(shell: Shell | TerminalShell, limit_s: float) -> str:
    """Say what is wrong with the commands after an input, and with one that meets its time limit; empty: nothing."""
    on, four = await shell.run("echo on"), await shell.run("(exit 4)")
    late = await shell.run("sleep 10000; echo went-on", timeout=limit_s)
    if not on.stdout.endswith("on\n") or four.exit_code != 4:
        return f"wrong: {on} {four}"
    if not late.timed_out or late.stdout.endswith("went-on\n"):
        return f"wrong after a limit: {late}"
    shown = [f"{result.stdout}{result.stderr}" for result in (on, four, late)]
    return f"what is the shell's own is shown: {shown}" if "__rollbox" in "".join(shown) else ""
