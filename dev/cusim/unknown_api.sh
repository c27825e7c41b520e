#!/bin/sh
# unknown_api.sh REAL_LIBRARY FOLDER OBJECT...: C source with a stub for every function the real library has and the
# objects lack; each stub ends the program with the function's name.
set -e
real=$1
folder=$2
shift 2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
nm -D --defined-only "$real" | awk '$2 ~ /[TW]/ { sub(/@.*/, "", $3); print $3 }' | sort -u > "$work/real"
nm --defined-only "$@" | awk '$2 ~ /[TW]/ { print $3 }' | sort -u > "$work/ours"
echo 'void cusim_unknown_api(const char*, const char*);'
comm -23 "$work/real" "$work/ours" | grep -E '^(__)?(cuda|cublas|nccl)[A-Za-z0-9_]*$' |
    sed "s|.*|__attribute__((visibility(\"default\"))) void &(void) { cusim_unknown_api(\"&\", \"$folder\"); }|"
