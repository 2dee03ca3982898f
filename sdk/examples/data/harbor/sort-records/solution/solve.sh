#!/bin/bash
set -eu
python3 - <<'END'
import json
records = json.load(open('/app/records.json'))
json.dump(sorted(records, key=lambda one: -one['age']), open('/app/records.json', 'w'))
END
