#!/bin/bash
set -eu
python3 -c "print(sum(map(int, open('/app/numbers.txt'))))" > /app/sum.txt
