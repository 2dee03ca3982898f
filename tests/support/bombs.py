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
