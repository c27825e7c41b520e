#!/bin/bash
# Breaks the code on purpose, one fault at a time, and expects the tests to notice. A mutation that survives is a
# hole in the tests. Works on a copy; needs a few minutes.
# Tests that drive the programs are left out: none are built here.   dev/mutations.sh [pattern of names]
set -u
cd "$(dirname "$0")/.."
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
survived=0 caught=0

# name ~ file ~ what stands there ~ what replaces it ~ tests (files test_NAME.cpp)
mutations=$(cat dev/mutations.txt)

git ls-files | tar -cf - -T - | tar -xf - -C "$copy"
while IFS='~' read -r name file from to tests; do
    [ -n "$name" ] && [ "${name#\#}" = "$name" ] || continue
    [[ $name == *${1:-}* ]] || continue
    cp "$file" "$copy/$file"
    python3 - "$copy/$file" "$from" "$to" <<'PY' || { echo "STALE     $name: \"$from\" is not in $file"; survived=$((survived + 1)); continue; }
import sys
path, old, new = sys.argv[1:]
text = open(path).read()
if old not in text:
    sys.exit(1)
open(path, "w").write(text.replace(old, new, 1))
PY
    objects=""
    for t in $tests; do objects="$objects $copy/build/test_$t.o"; done
    verdict=caught
    mkdir -p "$copy/build"
    for t in main $tests; do
        source=$copy/test/test_$t.cpp object=$copy/build/test_$t.o
        [ $t = main ] && source=$copy/test/main.cpp
        [ $t = main ] && [ -f "$object" ] && continue
        ${CXX:-g++} -std=c++17 -O1 -march=native -ffp-contract=off -fno-math-errno -fno-tree-slp-vectorize -fopenmp -w -I"$copy" -I"$copy/swarr" \
            -I"$copy/test" -c "$source" -o "$object" 2>/dev/null || verdict="caught (does not compile)"
    done
    if [ "$verdict" = caught ]; then
        libs=""
        [ -e /usr/include/catch2/catch_all.hpp ] && libs="-lCatch2Main -lCatch2"
        ${CXX:-g++} -fopenmp "$copy/build/test_main.o" $objects $libs -o "$copy/build/tests" &&
            SWARR_BIN=/nonexistent SWARR_SHARED=${SWARR_SHARED:-$PWD/../shared} timeout 300 "$copy/build/tests" "~[program]" >/dev/null 2>&1 && verdict=SURVIVED
    fi
    echo "$verdict  $name"
    if [ "$verdict" = SURVIVED ]; then survived=$((survived + 1)); else caught=$((caught + 1)); fi
    cp "$file" "$copy/$file"
done <<<"$mutations"
echo "$caught caught, $survived survived"
[ "$survived" = 0 ]
