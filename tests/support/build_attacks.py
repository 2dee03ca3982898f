"""What a step of a build tries that must not succeed.

Each command ends with 0 if it has got somewhere, and does no harm to the machine then. One step, which is root,
tries them all, and writes the names of those that have succeeded to `/won` of the image.
"""

from __future__ import annotations

import io
import json
import tarfile

# Where there would be something: the loopback of the machine or of the pod, services of clouds, other networks.
PLACES = (
    ("127.0.0.1", 7070),
    ("127.0.0.1", 8080),
    ("::1", 7070),
    ("169.254.169.254", 80),
    ("192.0.2.1", 80),
    ("fd00:ec2::254", 80),
)
CONNECT = "import socket; socket.create_connection(({!r}, {}), 3)"
# By number, since most have no program. Each is one that would be granted to a process with the right.
CALLS = {
    "open a file by its handle": (
        "h = ctypes.create_string_buffer(136); h[0] = 128; m = ctypes.c_int(); "
        "call(303, -100, b'/', h, ctypes.byref(m), 0); won = call(304, -100, h, 0)"
    ),
    "make a map of BPF": "import struct; won = call(321, 0, struct.pack('4I56x', 2, 4, 4, 1), 72)",
    "watch all processes": ("import struct; won = call(298, struct.pack('IIQ112x', 1, 128, 0), -1, 0, -1, 0)"),
    "unload a kernel that waits": "won = call(246, 0, 0, 0, 0)",
    "end process accounting": "won = call(163, None)",
    "have the ports of the machine": "won = call(172, 3)",
    "name the machine": "won = call(170, b'x', 1)",
    "clone the tree of mounts": "won = call(428, -100, b'/', 1)",
    "make a file system": "won = call(430, b'tmpfs', 0)",
}
CALL = "import ctypes, sys; call = ctypes.CDLL(None).syscall; {}; sys.exit(won < 0)"
RAW = "import socket as s; s.socket(s.AF_PACKET, s.SOCK_RAW, 3).sendto(bytes(64), ('eth0', 0))"
OPEN = "import os, glob, sys; [os.open(one, os.O_WRONLY) for one in glob.glob({!r}) or sys.exit(1)]"
INTERFACES = "import socket, sys; sys.exit({*dict(socket.if_nameindex()).values()} <= {'lo'})"
LIMIT = "import resource as r; r.setrlimit(r.RLIMIT_NOFILE, (1 << 24, 1 << 24))"
COMMANDS = {
    "find an abstract socket": ["grep @ /proc/net/unix"],
    "find the socket of an engine": ["ls /run/*/*.sock /run/*.sock"],
    "read the token of a pod": ["cat /var/run/secrets/kubernetes.io/serviceaccount/token"],
    "read a secret that another step had": ["cat /run/secrets/*"],
    "read what a builder was told": ["cat /proc/[0-9]*/environ | tr '\\0' '\\n' | grep -a ^ROLLBOX_"],
    "mount a file system": ["mount -t tmpfs none /mnt"],
    "mount the root once more": ["mount --bind / /mnt"],
    "mount the machine's disk": ["mknod /disk b 254 0 && mount /disk /mnt"],
    "read the machine's disk": [
        "for n in 8 253 254 259; do mknod /d$n b $n 0; head -c 1 /d$n; done | grep -qa .",
    ],
    "read the kernel's memory": ["mknod /memory c 1 1 && head -c 1 /memory | grep -qa ."],
    "take /proc away": ["umount /proc"],
    "have mounts of its own": ["unshare --mount true"],
    "enter the namespaces of process 1": ["nsenter --target 1 --mount --net --uts true"],
}


def _python(text: str) -> list[str]:
    return ["python3", "-c", text]


ATTACKS: dict[str, list[str]] = {
    **{f"connect to {host} port {port}": _python(CONNECT.format(host, port)) for host, port in PLACES},
    "look a name up": _python("import socket; socket.getaddrinfo('example.com', 80)"),
    "find another interface": _python(INTERFACES),
    "send a raw packet": _python(RAW),
    **{name: _python(CALL.format(made)) for name, made in CALLS.items()},
    "have core dumps handled": _python(OPEN.format("/proc/sys/kernel/core_pattern")),
    "write settings of the kernel": _python(OPEN.format("/proc/sys/kernel/*")),
    "write settings of disks": _python(OPEN.format("/sys/block/*/queue/nr_requests")),
    "have more files open than allowed": _python(LIMIT),
    **{name: ["sh", "-c", *command] for name, command in COMMANDS.items()},
}
TRY = """
import json, subprocess
won = []
for name, command in json.load(open("/attacks.json")).items():
    try:
        ended = subprocess.run(command, stdin=-3, stdout=-3, stderr=-3, timeout=20).returncode
    except subprocess.TimeoutExpired:
        ended = -1
    won += [name] if ended == 0 else []
json.dump(won, open("/won", "w"))
"""
DOCKERFILE = (
    "FROM $BASE\nCOPY attacks.json try.py /\n"
    "RUN --mount=type=secret,id=token test -s /run/secrets/token\nRUN python3 /try.py"
)


def files() -> dict[str, str]:
    """Those that `DOCKERFILE` copies."""
    return {"attacks.json": json.dumps(ATTACKS), "try.py": TRY}


def archive(name: str) -> bytes:
    """An archive whose names lead out of where it is unpacked: by `..`, from the root, and through a link."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as packed:
        link = tarfile.TarInfo("link")
        link.type, link.linkname = tarfile.SYMTYPE, "/tmp"
        packed.addfile(link)
        for path in (f"../../../../../../{name}-up", f"/{name}-root", f"link/{name}-link"):
            packed.addfile(tarfile.TarInfo(path))
    return made.getvalue()
