#!/bin/bash
# -I: nothing that the solver wrote is imported, wherever this runs.
if python3 -I /tests/judge.py; then reward=1; else reward=0; fi
echo $reward > /logs/verifier/reward.txt
