#!/bin/bash
set -eu
python3 - <<'END'
import csv, json
total = {}
for row in csv.DictReader(open('/app/sales.csv')):
    total[row['city']] = total.get(row['city'], 0) + int(row['amount'])
json.dump(total, open('/app/total.json', 'w'))
END
