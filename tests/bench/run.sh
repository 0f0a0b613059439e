#!/bin/sh
# Builds the benchmark of updates for speed, runs it and prints the tables of the README.
#
# usage: sh tests/bench/run.sh [CHUNKS]
#
# CHUNKS (1000000 if not given) is the largest collection. At 1,000,000 it takes 6 GB of memory and
# half an hour on a quiet machine, at 100,000 five minutes. Numbers are microseconds of the calling
# thread's own work; sizes and variants that are compared run interleaved in one process. Needs
# CMake, a compiler, python3 and Google Benchmark (libbenchmark-dev on Debian and Ubuntu).
root=$(cd "$(dirname "$0")/../.." && pwd) || exit 1
build=$root/build/bench
largest=${1:-1000000}
mkdir -p "$build" || exit 1
{ cmake -S "$root" -B "$build" -D CMAKE_BUILD_TYPE=Release -D RAG_RETRIEVE_BUILD_BENCHMARKS=ON \
    -D RAG_RETRIEVE_BUILD_TESTS=OFF -D RAG_RETRIEVE_BUILD_EXAMPLES=OFF &&
  cmake --build "$build" --target rag_retrieve_bench_updates; } >"$build/build.log" 2>&1 ||
  { tail -20 "$build/build.log"; exit 1; }

# measure NAME FILTER REPETITIONS
measure() {
  echo "measuring: $1" >&2
  "$build/tests/bench/updates" --largest="$largest" --benchmark_filter="^($2)/" \
    --benchmark_repetitions="$3" --benchmark_enable_random_interleaving=true \
    --benchmark_out_format=json --benchmark_out="$build/$1.json" >"$build/$1.log" 2>&1 ||
    { tail -5 "$build/$1.log"; exit 1; }
}
measure updates 'replace|erase' 100
measure add 'add' 100
measure access 'set_access|after_set_access|chunks' 20
measure beside 'idle|updates|others' 20
measure scopes 'scope|shared|stranger|first' 20
measure segments '(dense_)?segments' 20
measure memory 'memory' 1
python3 "$root/tests/bench/table.py" "$build"
