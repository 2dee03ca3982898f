"""Shell commands that attack the sandbox they run in; none ends by itself."""

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
    "a million files": "rm -rf /tmp/many; python3 -c \"import os\nos.mkdir('/tmp/many')\nfor n in range(1_000_000):\n"
    "  os.close(os.open(f'/tmp/many/{n}', os.O_CREAT | os.O_WRONLY))\"",
    "10 GB of output": "head -c 10000000000 /dev/zero; head -c 10000000 /dev/zero >&2",
    "no files left": "rm -rf --no-preserve-root / 2>/dev/null",
}
