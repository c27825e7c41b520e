#!/bin/bash
# The demo over several seeds, and one table of what must come out of each.   dev/seeds.sh [seed ...]
set -eu
cd "$(dirname "$0")/.."
build=${BUILD:-build} bin=${BIN:-.}
[ $# -gt 0 ] || set -- 1 2 3 4 5
folders=""
for seed in "$@"; do
    # A seed whose finding does not hold still enters the table, which then says so.
    "$build/demo/demo" --bin "$bin" --seed "$seed" --out "$build/demo/seed_$seed" >"$build/demo/seed_$seed.log" || true
    [ -f "$build/demo/seed_$seed/results.json" ] || { tail -5 "$build/demo/seed_$seed.log" >&2; exit 1; }
    folders="$folders $build/demo/seed_$seed"
done
"$build/demo/demo" --summarize $folders
