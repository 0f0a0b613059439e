#!/bin/sh
# Builds the benchmark of the chunkers for speed, runs it over real text and prints its tables.
#
# usage: sh tests/bench/chunkers.sh DATASETS [REPETITIONS]
#
# DATASETS holds folders with docs.jsonl, as chunkers.py lists them. Numbers are medians of so many
# repetitions (9 if not given) of the thread's own time, all rows and texts interleaved in one
# process. Needs CMake, a compiler, python3, ICU and Google Benchmark (libicu-dev and
# libbenchmark-dev on Debian and Ubuntu); cmark (libcmark-dev) is another row where it is found.
root=$(cd "$(dirname "$0")/../.." && pwd) || exit 1
build=$root/build/bench
datasets=${1:?usage: sh tests/bench/chunkers.sh DATASETS [REPETITIONS]}
mkdir -p "$build" || exit 1
python3 "$root/tests/bench/chunkers.py" texts "$datasets" "$build/chunkers_text" || exit 1
{ cmake -S "$root" -B "$build" -D CMAKE_BUILD_TYPE=Release -D RAG_RETRIEVE_BUILD_BENCHMARKS=ON \
    -D RAG_RETRIEVE_BUILD_TESTS=OFF -D RAG_RETRIEVE_BUILD_EXAMPLES=OFF &&
  cmake --build "$build" --target rag_retrieve_bench_chunkers; } >"$build/build.log" 2>&1 ||
  { tail -20 "$build/build.log"; exit 1; }
"$build/tests/bench/chunkers" "$build/chunkers_text" --benchmark_repetitions="${2:-9}" \
  --benchmark_min_time=0.02 --benchmark_enable_random_interleaving=true \
  --benchmark_out_format=json --benchmark_out="$build/chunkers.json" >"$build/chunkers.log" 2>&1 ||
  { tail -5 "$build/chunkers.log"; exit 1; }
python3 "$root/tests/bench/chunkers.py" table "$build"
