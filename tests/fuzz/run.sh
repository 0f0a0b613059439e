#!/bin/sh
# Runs libFuzzer over chunkers, Markdown and sentences under ASan and UBSan, one after the other.
#
# usage: sh tests/fuzz/run.sh [SECONDS] [chunkers] [markdown] [sentences]
#
# SECONDS for each (60 if not given). Needs clang with compiler-rt. New inputs go to build/fuzz;
# those below tests/fuzz/corpus are where it begins. Fails where an input breaks a property.
root=$(cd "$(dirname "$0")/../.." && pwd) || exit 1
cd "$root" || exit 1
seconds=${1:-60}
[ $# -gt 0 ] && shift
for name in clang++-19 clang++-18 clang++-17 clang++-16 clang++; do
  if command -v "$name" >/dev/null 2>&1; then clang=$name; break; fi
done
[ -n "${clang:-}" ] || { echo "left out (needs clang)"; exit 0; }
failed=
for target in ${*:-chunkers markdown sentences}; do
  mkdir -p "build/fuzz/$target" || exit 1
  echo "==== $target, $seconds seconds"
  $clang -std=c++20 -O1 -g -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=all -I . \
    "tests/fuzz/$target.cpp" -o "build/fuzz/$target.run" || exit 1
  "build/fuzz/$target.run" -max_total_time="$seconds" -max_len=2048 -timeout=20 -print_final_stats=1 \
    -artifact_prefix="build/fuzz/$target-" "build/fuzz/$target" "tests/fuzz/corpus/$target" \
    >"build/fuzz/$target.log" 2>&1 || { tail -30 "build/fuzz/$target.log"; failed="$failed $target"; }
  grep -E 'number_of_executed_units|^Done' "build/fuzz/$target.log"
done
if [ -n "$failed" ]; then echo "failed:$failed"; exit 1; fi
