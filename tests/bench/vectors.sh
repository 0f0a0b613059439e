#!/bin/sh
# Builds and runs the measurements of vector search; arguments go to the program (ROWS DIMENSION
# ROUNDS PART, or these and the whole paths of DOCUMENTS and QUESTIONS, see vectors.cpp). Plain -O2.
# FAISS (libfaiss-dev, with libopenblas-dev) and hnswlib (libhnswlib-dev) are compared where they
# are found, below PEERS if that names a folder, and a prototype where RAG_RETRIEVE_BENCH names a
# folder that has vector_kernels.hpp.
#
# Two traps: an old OpenBLAS does not know new processors (set OPENBLAS_CORETYPE=SkylakeX where they
# have AVX-512), and OpenMP spins against it with several threads; here all have one.
root=$(cd "$(dirname "$0")/../.." && pwd) || exit 1
cd "$root" || exit 1
mkdir -p build/bench
flags= libraries=
has() { echo "#include <$1>" | ${CXX:-g++} -std=c++20 $flags -fsyntax-only -x c++ - 2>/dev/null; }
if [ -n "${PEERS:-}" ]; then
  flags="-isystem $PEERS/usr/include"
  for folder in "$PEERS"/usr/lib/*/ "$PEERS"/usr/lib/*/openblas-pthread/ "$PEERS"/usr/lib/*/lapack/; do
    libraries="$libraries -L$folder -Wl,-rpath,$folder"
  done
fi
if has faiss/IndexFlat.h; then
  flags="$flags -DRAG_RETRIEVE_BENCH_FAISS -fopenmp"
  libraries="$libraries -lfaiss -lopenblas"
fi
if has hnswlib/hnswlib.h; then flags="$flags -DRAG_RETRIEVE_BENCH_HNSWLIB"; fi
if [ -f "${RAG_RETRIEVE_BENCH:-}/vector_kernels.hpp" ]; then
  flags="$flags -DRAG_RETRIEVE_BENCH_PROTOTYPE -isystem $RAG_RETRIEVE_BENCH"
fi
${CXX:-g++} -std=c++20 -O2 -I . $flags tests/bench/vectors.cpp -o build/bench/vectors $libraries \
  -pthread || exit 1
OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 OMP_WAIT_POLICY=PASSIVE exec build/bench/vectors "$@"
