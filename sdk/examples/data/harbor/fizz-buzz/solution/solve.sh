#!/bin/bash
set -eu
cat > /app/fizz.py <<'END'
for n in range(1, 16):
    print('Fizz' * (n % 3 == 0) + 'Buzz' * (n % 5 == 0) or n)
END
