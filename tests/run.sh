#!/bin/sh
# Gets what is missing, builds everything and runs all tests; arguments go to ctest (-R fusion).
# Longer checks (sanitizers, threads, other compilers) are in tests/long.sh.
root=$(cd "$(dirname "$0")/.." && pwd) || exit 1
. "$root/examples/setup.sh"
want_tests() {
  want_tools
  has_header doctest/doctest.h || missing="$missing doctest-dev"
  has_command pkg-config || wished="$wished pkg-config"
  has_command python3 || wished="$wished python3"
  has_header cmark.h || wished="$wished libcmark-dev"
  [ -f /usr/share/unicode/DerivedCoreProperties.txt ] || wished="$wished unicode-data"
}
build tests all || exit 1
if [ -z "${RAG_RETRIEVE_DATASETS:-}" ]; then
  echo "RAG_RETRIEVE_DATASETS is not set: tests that read the larger data sets are skipped"
fi
exec ctest --test-dir "$root/build" --output-on-failure \
  --parallel "$(getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2)" "$@"
