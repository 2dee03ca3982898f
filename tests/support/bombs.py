"""Shell commands that attack the sandbox they run in."""

# None ends by itself.
BOMBS = {
    "forks": "b() { b | b & }; b; sleep 60",
    "forks that ignore signals": 'python3 -c "import os, signal\nsignal.signal(15, signal.SIG_IGN)\nwhile 1:\n'
    '  try: os.fork()\n  except OSError: pass"',
    "threads": 'python3 -c "import threading, time\nwhile 1:\n'
    '  try: threading.Thread(target=time.sleep, args=(99,)).start()\n  except RuntimeError: time.sleep(1)"',
    "zombies": 'python3 -c "import os, time\nwhile 1:\n  try:\n    if os.fork() == 0: os._exit(0)\n'
    '  except OSError: time.sleep(0.1)"',
    "memory": 'python3 -c "x = []\nwhile 1: x.append(bytearray(1 << 24))"',
    "kill of everything": "kill -9 -1; sleep 60",
    "kill of everything, again and again": 'python3 -c "import os\nwhile 1:\n'
    '  try: os.kill(-1, 9)\n  except OSError: pass"',
    "stop of everything": 'python3 -c "import os\nwhile 1:\n  try: os.kill(-1, 19)\n  except OSError: pass"',
    "descriptors": 'python3 -c "import os, time, resource\nresource.setrlimit(7, (resource.getrlimit(7)[1],) * 2)\n'
    'try:\n  while 1: os.pipe()\nexcept OSError: time.sleep(60)"',
}

# Attacks by mass, which need something to be full or empty of before they go off again.
FLOODS = {
    "a full disk": "head -c 10G /dev/zero > /dev/shm/full; rm -f /dev/shm/full",
    "files without end": 'rm -rf /tmp/many; python3 -c "import os\nfrom itertools import count\n'
    "os.mkdir('/tmp/many')\nmany = os.open('/tmp/many', os.O_RDONLY)\nfor n in count():\n"
    "  os.close(os.open(f'{n}', os.O_CREAT | os.O_WRONLY, dir_fd=many))\"",
    "output without end": "cat /dev/zero",
    "no files left": "rm -rf --no-preserve-root / 2>/dev/null",
}


def output(size_bytes: int) -> str:
    """Writes so many bytes to stdout, and a hundredth of that to stderr."""
    return f"head -c {size_bytes} /dev/zero; head -c {size_bytes // 100} /dev/zero >&2"
