#!/bin/sh
# The longer checks, each in a build folder of its own; some hours on two cores.
#
# usage: sh tests/long.sh [sanitize] [threads] [libcxx] [alone] [chars] [levels] [fastmath] [runs]
#                         [searches] [chunks] [fuzz] [documents] [portability]
# Without arguments all of them. Needs what tests/run.sh installs; a check whose compiler is missing
# is left out and said to be.
root=$(cd "$(dirname "$0")/.." && pwd) || exit 1
jobs=$(getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2)
cd "$root" || exit 1
mkdir -p build
failed=

clang=
for name in clang++-19 clang++-18 clang++-17 clang++-16 clang++; do
  if command -v "$name" >/dev/null 2>&1; then clang=$name; break; fi
done

# with NAME CTEST_ARGUMENTS CMAKE_ARGUMENTS... : builds everything that way and runs the tests
with() {
  name=$1 select=$2; shift 2
  echo "==== $name: $*"
  cmake -S . -B "build/$name" "$@" >"build/$name.log" 2>&1 &&
    cmake --build "build/$name" --parallel "$jobs" >>"build/$name.log" 2>&1 ||
    { tail -40 "build/$name.log"; failed="$failed $name"; return; }
  ctest --test-dir "build/$name" --output-on-failure --parallel "$jobs" $select ||
    failed="$failed $name"
}
without_compilers="-E consumer|must_not_compile|portability"

sanitize() {
  with sanitize "$without_compilers" -D CMAKE_CXX_FLAGS="-g -fsanitize=address,undefined \
    -fno-sanitize-recover=all -D_GLIBCXX_ASSERTIONS"
}
threads() {
  with threads "$without_compilers" -D RAG_RETRIEVE_BUILD_EXAMPLES=OFF \
    -D CMAKE_CXX_FLAGS="-g -fsanitize=thread"
}
libcxx() {
  if [ -z "$clang" ] ||
     ! echo '#include <vector>' | $clang -stdlib=libc++ -fsyntax-only -x c++ - 2>/dev/null
  then echo "==== libcxx: left out (needs clang with libc++)"; return; fi
  with libcxx "$without_compilers" -D CMAKE_CXX_COMPILER=$clang -D CMAKE_CXX_FLAGS=-stdlib=libc++ \
    -D RAG_RETRIEVE_USE_ICU=OFF
}
# Every test file by itself, which needs no other's includes.
alone() { with alone "$without_compilers" -D CMAKE_UNITY_BUILD=OFF; }
chars() { with chars "$without_compilers" -D CMAKE_CXX_FLAGS=-funsigned-char; }
# Words at every level of optimisation: the lists are those of exhaustive scoring, and the golden
# numbers the same.
levels() {
  for compiler in g++ $clang; do
    for level in 0 1 2 3; do
      echo "==== levels: $compiler -O$level"
      $compiler -std=c++20 -O$level -pthread -I . -I tests tests/main.cpp tests/terms.cpp \
        tests/terms_exhaustive.cpp -o build/levels && build/levels --no-intro --minimal ||
        failed="$failed levels"
    done
  done
}
fastmath() { with fastmath "-R vector|persistence" -D CMAKE_CXX_FLAGS="-O2 -ffast-math"; }
runs() {
  RAG_RETRIEVE_PROPERTY_RUNS=${RAG_RETRIEVE_PROPERTY_RUNS:-20000} export RAG_RETRIEVE_PROPERTY_RUNS
  with runs "$without_compilers" -D CMAKE_BUILD_TYPE=Release
  unset RAG_RETRIEVE_PROPERTY_RUNS
}
# Millions of searches beside updates.
searches() {
  RAG_RETRIEVE_PROPERTY_RUNS=${RAG_RETRIEVE_PROPERTY_RUNS:-500000} export RAG_RETRIEVE_PROPERTY_RUNS
  with runs "-R ^(atomicity|threads)$ --timeout 10800" -D CMAKE_BUILD_TYPE=Release
  unset RAG_RETRIEVE_PROPERTY_RUNS
}
# Millions of made documents through every chunker, and four times as many against cmark.
chunks() {
  RAG_RETRIEVE_PROPERTY_RUNS=${RAG_RETRIEVE_PROPERTY_RUNS:-1000000} export RAG_RETRIEVE_PROPERTY_RUNS
  with runs "-R ^properties_chunkers$ --timeout 20000" -D CMAKE_BUILD_TYPE=Release
  unset RAG_RETRIEVE_PROPERTY_RUNS
}
fuzz() { sh tests/fuzz/run.sh 900 || failed="$failed fuzz"; }
documents() {
  echo "==== documents: every chunker over hard documents"
  if [ ! -d "${RAG_RETRIEVE_DATASETS:-}/nasty" ]; then
    echo "left out (needs the folder 'nasty' in RAG_RETRIEVE_DATASETS)"; return
  fi
  if [ ! -x build/sanitize/examples/rag ]; then sanitize; fi
  python3 tests/hard_documents.py build/sanitize/examples/rag "$RAG_RETRIEVE_DATASETS/nasty" ||
    failed="$failed documents"
}
portability() { sh tests/portability/run.sh build/portability || failed="$failed portability"; }

for check in ${*:-sanitize threads libcxx alone chars levels fastmath runs searches chunks fuzz documents portability}; do
  $check
done
if [ -n "$failed" ]; then echo "failed:$failed"; exit 1; fi
echo "all longer checks passed"
