#!/bin/sh
# Faults that a landing has to find, put in one by one: see run.py and mutants.toml.
exec python3 -B "$(dirname -- "$0")/run.py" "$@"
