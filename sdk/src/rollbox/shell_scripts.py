"""What shells get as their first input: the functions that begin and end their commands. Pure.

bash reads its input byte by byte, since the programs that it starts may read on, and under gVisor each read takes 10 to
30 us. So it gets one short line for a command, the text of a variable, and reads the rest at once, as so many bytes
behind that line: the size and the mark, and then the command. A redirection takes nine system calls, and an open of
/dev/null two more, so what the shell answers goes by descriptors that stay open; and in one write to each, since a
write wakes all that is between the shell and its reader.
"""

# Between two commands the shell prints nothing of what it reads or runs (`set -v`, `set -x`): it is not the command's.
# `-`: a command has its own settings.
_PAUSE = "case $__rollbox_flags in -) __rollbox_flags=$-;; esac; command set +xv"
_BEGIN = """__rollbox_flags=
__rollbox_begin() {
case $__rollbox_flags in *v*) command set -v;; esac
case $__rollbox_flags in *x*) command set -x;; esac
__rollbox_flags=-
command return "$1"
}
"""
END = f"""__rollbox_end() {{
case ${{__rollbox_status-}} in "") __rollbox_status=$1;; esac
{_PAUSE}
PROMPT
}}
"""
# Its trap anew: a command may have taken that away. Descriptor numbers that scripts rarely use; bash picks free ones.
_SH_ASK = f"""__rollbox_ask() {{
{_PAUSE}
command trap - INT
command set -- "${{__rollbox_status:-$1}}" "$2" "$3"
__rollbox_status=
command eval "ROLLBOX_COMMAND_ID=$2; command export ROLLBOX_COMMAND_ID"
command eval __rollbox_= || command return "$1"
{{ command printf '%s%d\\n' "$2$3" "$1"; command jobs -p; command printf %s "$2$3"; }} >&6 2>/dev/null
command printf %s "$2$3" >&8
command return "$1"
}}
"""
SH_SETUP = f"PS2=\nexec 6>&1 8>&2\n{_BEGIN}{_SH_ASK}"
# Behind a command, in `eval`; after `set -x` it is traced to nowhere.
STATUS = '{ __rollbox_status=$?; } 2>&"$__rollbox_null"'
# The header behind a line: the size of the command's text, and the mark in its halves.
HEADER = "{size:08d} {first} {second}\n"
_HEADER_CHARS = 43
_BASH_ASK = f"""__rollbox_ask() {{
{_PAUSE}
command trap '{{ __rollbox_stop; }} 2>/dev/null' URG
case ${{2-}} in read) __rollbox_header;; esac
command eval "ROLLBOX_COMMAND_ID=$__rollbox_first; command export ROLLBOX_COMMAND_ID"
command eval __rollbox_= || command return 0
case $__rollbox_status in "") __rollbox_status=$1;; esac
command set -- "$__rollbox_status" "$__rollbox_first" "$__rollbox_second"
case ${{!-}} in
"") command printf '%s%s%d %s%s' "$2" "$3" "$1" "$2" "$3";;
*) command printf '%s%s%d\\n' "$2" "$3" "$1"; command jobs -p; command printf %s%s "$2" "$3";;
esac
command printf %s%s "$2" "$3" >&"$__rollbox_err"
command return 0
}}
"""
# What the line of a command stands for. Before a command that `set -v` or `set -x` holds for, the shell takes that up.
_BASH_RUN = (
    '{ __rollbox_read&&:;};\\command eval "$__rollbox_run" <&"$__rollbox_null"'
    ';{ __rollbox_ask "$?"&&:;}>&"$__rollbox_out" 2>&"$__rollbox_null"'
)
BASH_SETUP = (
    "exec {__rollbox_out}>&1 {__rollbox_err}>&2 {__rollbox_null}<>/dev/null; __rollbox_status=0\n"
    f"__rb='{_BASH_RUN}'\n"
    f"""__rollbox_header() {{
command read -r -N {_HEADER_CHARS} __rollbox_text
__rollbox_first=${{__rollbox_text:9:16}} __rollbox_second=${{__rollbox_text:26:16}}
}}
__rollbox_read() {{
__rollbox_header
command read -r -N "${{__rollbox_text:0:8}}" __rollbox_text
case $__rollbox_flags in
*[vx]*) __rollbox_set='{{ __rollbox_begin "$?" && __rollbox_=; }} >/dev/null 2>&1
';;
*) __rollbox_set= __rollbox_flags=-;;
esac
command eval "$__rollbox_text"
command set -- "$__rollbox_status"
__rollbox_status=
command return "$1"
}}
"""
    + _BEGIN
    + _BASH_ASK
    + f"__rollbox_stop() {{\n{_PAUSE}\n"
    + """command shopt -s extdebug; command set -o functrace
command trap 'case $BASH_COMMAND in "__rollbox_ask "*) __rollbox_go_on;; \
*) command break 999 2>/dev/null; __rollbox_leave;; esac' DEBUG
}
__rollbox_leave() { command return 2; }
__rollbox_go_on() { command trap - DEBUG; command set +o functrace; command shopt -u extdebug; }
"""
    + "command trap '{ __rollbox_stop; } 2>/dev/null' URG\n"
)
# The prompt is set by `command eval`: where a function stands for that, the shell shows none of its own, and a
# read-only variable is a failure and no more. Programs do not inherit the prompt.
TERMINAL_SETUP = (
    "stty -echo -ixon 2>/dev/null; %(only)sPS2=\n"
    + _BEGIN
    + f"""__rollbox_end() {{
{_PAUSE}
case ${{__rollbox_number-}} in "$1") ;; *) __rollbox_status=$2 __rollbox_number=$1;; esac
command eval '__rollbox_mark="%(first)s""%(second)s$1:$__rollbox_status;"'
command eval 'ROLLBOX_COMMAND_ID=%(first)s$1; command export ROLLBOX_COMMAND_ID'
}}
"""
    # A command may have redirected the shell's stderr, where its prompt goes.
    + """__rollbox_prompt() {
__rollbox_ps1=$__rollbox_mark
command test -t 2 || __rollbox_ps1='$(command printf %%s "'$__rollbox_mark'" >/dev/tty)'
command eval 'unset PS1; PS1=$__rollbox_ps1' 2>/dev/null || command printf %%s "$__rollbox_mark" >/dev/tty
command return "$__rollbox_status"
}
"""
    + "%(ask)s"
)
