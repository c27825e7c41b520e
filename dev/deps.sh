#!/bin/sh
# Checks for the packages the build needs. `dev/deps.sh check` prints the command that installs what is missing
# and fails; `dev/deps.sh install` runs it (Debian, Ubuntu; as root or through sudo).
set -u
mode=${1:-check}
missing=""
probe() { # package, reason, and a command that succeeds when it is there
    package=$1 reason=$2
    shift 2
    "$@" >/dev/null 2>&1 && return
    echo "missing: $package ($reason)"
    missing="$missing $package"
}
header() { echo "#include <$1>" | "${CXX:-g++}" -std=c++17 -fsyntax-only -x c++ -; }

probe g++ "compiles everything" command -v "${CXX:-g++}"
if [ -n "$missing" ]; then # without a compiler the headers cannot be probed
    missing="g++ nlohmann-json3-dev libcli11-dev catch2"
else
    probe nlohmann-json3-dev "reads and writes JSON" header nlohmann/json.hpp
    probe libcli11-dev "parses command lines" header CLI/CLI.hpp
    if header catch2/catch_all.hpp || header catch2/catch.hpp; then :; else
        probe catch2 "runs the tests" false
    fi 2>/dev/null
fi
needed=$missing
# `install` also brings what the tests can do without: they then start no ranks.
[ "$mode" = check ] || probe "libopenmpi-dev openmpi-bin" "optional: several ranks" command -v mpicc
[ -n "$missing" ] || exit 0

as_root=""
[ "$(id -u)" = 0 ] || as_root="sudo "
command="${as_root}apt-get update && ${as_root}apt-get install -y --no-install-recommends $(echo $missing)"
if [ "$mode" = install ] && command -v apt-get >/dev/null && { [ -z "$as_root" ] || sudo -n true 2>/dev/null || [ -t 0 ]; }; then
    echo "installing:$missing"
    export DEBIAN_FRONTEND=noninteractive
    sh -c "$command" && exit 0
fi
[ -n "$needed" ] || exit 0
echo "error: packages are missing; install them with"
echo "hint: $command"
exit 1
