#!/bin/sh
# The header against the rules that keep a header-only library portable, each with what breaks if
# it is not kept. Uses the compilers it finds and says which checks it left out.
#
# usage: sh tests/portability/run.sh [WORK_FOLDER]
root=$(cd "$(dirname "$0")/../.." && pwd)
here=tests/portability
H=rag_retrieve.hpp
cd "$root" || exit 1
work=${1:-build/portability}
mkdir -p "$work" && work=$(cd "$work" && pwd) || exit 1

W="-std=c++20 -Wall -Wextra -Wpedantic -Wconversion -Wsign-conversion -Wshadow -Wold-style-cast
   -Wdouble-promotion -Wundef -Wformat=2 -Wcast-align -Wnon-virtual-dtor -Woverloaded-virtual
   -Werror"
alone="-fsyntax-only -x c++ $H"

passed=0 failed=0 left_out=0 seen=
found() { command -v "$1" >/dev/null 2>&1; }
first_of() { for name; do found "$name" && echo "$name" && return; done; echo "none"; }
gcc=$(first_of g++-12 g++ g++-13 g++-14)
clang=$(first_of clang++-19 clang++ clang++-18 clang++-17 clang++-16)

good() { passed=$((passed + 1)); printf 'rule %2s  ok        %s\n' "$1" "$2"; }
bad() {
  failed=$((failed + 1))
  printf 'rule %2s  FAILED    %s\n' "$1" "$2"
  sed 's/^/    /' "$work/log" | head -20
}
skip() { left_out=$((left_out + 1)); printf 'rule %2s  left out  %s (needs %s)\n' "$1" "$2" "$3"; }

# silent RULE WHAT COMMAND... : the command succeeds and says nothing
silent() {
  rule=$1 what=$2; shift 2
  if ! found "$1"; then skip "$rule" "$what" "$1"; return; fi
  if "$@" >"$work/log" 2>&1 && [ ! -s "$work/log" ]; then
    good "$rule" "$what"
  else
    bad "$rule" "$what"
  fi
}
# works RULE WHAT SHELL_TEXT : the text succeeds
works() {
  if sh -c "$3" >"$work/log" 2>&1; then good "$1" "$2"; else bad "$1" "$2"; fi
}
# absent RULE WHAT PATTERN [FILE] : grep finds the pattern nowhere
absent() {
  if grep -nP "$3" "${4:-$H}" >"$work/log"; then bad "$1" "$2"; else good "$1" "$2"; fi
}
# has_libcxx COMPILER : it can compile with libc++
has_libcxx() {
  found "$1" && echo '#include <vector>' | "$1" -stdlib=libc++ -fsyntax-only -x c++ - 2>/dev/null
}

# The header without comments and without the fenced kernel block, for the searches.
sed -e 's|//.*||' "$H" >"$work/code.hpp"
sed -e '/kernels: begin/,/kernels: end/d' -e 's|//.*||' "$H" >"$work/plain.hpp"
grep -E '^#include <[a-z_]+>' "$H" >"$work/standard_headers.hpp"
code=$work/code.hpp plain=$work/plain.hpp

silent 1 "compiles after the macros of others" \
  $gcc $W -include "$work/standard_headers.hpp" -include $here/poison_macros.hpp $alone
silent 2 "compiles after windows.h" x86_64-w64-mingw32-g++-posix $W -include windows.h $alone
if found $gcc; then
  $gcc -std=c++20 -x c++ -c $H -o "$work/header.o" 2>"$work/log"
  works 3 "no definition that two files would repeat" \
    "! nm -C '$work/header.o' | grep -E ' [TDBRC] '"
  works 4 "two files link without an ODR warning under LTO" \
    "cd $here && $gcc $(echo $W) -I '$root' -O2 -flto -Wodr -Wlto-type-mismatch two_files_a.cpp \
     two_files_b.cpp -o '$work/two' && '$work/two'"
  works 5 "no code before main" "! objdump -h '$work/header.o' | grep init_array"
fi
silent 3 "no missing prototype" \
  $clang $W -Wmissing-prototypes -Wmissing-variable-declarations $alone
absent 4 "no static or unnamed namespace at namespace scope" '^(static |namespace \{)'
silent 5 "no constructor before main, no destructor after it" \
  $clang $W -Wglobal-constructors -Wexit-time-destructors $alone
if has_libcxx $clang; then
  silent 6 "includes all that it uses" \
    $clang -std=c++20 -stdlib=libc++ -D_LIBCPP_REMOVE_TRANSITIVE_INCLUDES $alone
else
  skip 6 "includes all that it uses" "clang with libc++"
fi
silent 6 "compiles after every standard header" $gcc $W -include bits/stdc++.h $alone
for compiler in g++ g++-12 g++-13 g++-14 clang++-14 clang++-16 clang++-19 \
                x86_64-w64-mingw32-g++-posix i686-linux-gnu-g++; do
  real=$(readlink -f "$(command -v $compiler)")
  case " $seen " in *" $real "*) continue ;; esac  # g++ is often one of the others
  if [ -n "$real" ]; then seen="$seen $real"; fi
  silent 7 "silent under the strict set: $compiler" $compiler $W $alone
done
if echo '#include <unicode/utypes.h>' | $gcc -fsyntax-only -x c++ - 2>/dev/null; then
  silent 7 "silent under the strict set, with ICU: $gcc" $gcc $W -DRAG_RETRIEVE_USE_ICU=1 $alone
  silent 7 "silent under the strict set, with ICU: $clang" $clang $W -DRAG_RETRIEVE_USE_ICU=1 $alone
else
  skip 7 "silent under the strict set, with ICU" "libicu-dev"
fi
if has_libcxx $clang; then
  silent 7 "silent under the strict set: $clang, libc++" $clang -stdlib=libc++ $W $alone
else
  skip 7 "silent under the strict set, libc++" "clang with libc++"
fi
absent 8 "no C string or file calls" '\b(fopen|getenv|strcpy|strncpy|sprintf|localtime)\b' "$code"
silent 9 "compiles without exceptions and RTTI: $clang" \
  $clang $W -fno-exceptions -fno-rtti $alone
silent 9 "compiles without exceptions and RTTI: $gcc" $gcc $W -fno-exceptions -fno-rtti $alone
if echo '#include <unicode/utypes.h>' | $gcc -fsyntax-only -x c++ - 2>/dev/null; then
  silent 9 "compiles without exceptions and RTTI, with ICU" \
    $gcc $W -fno-exceptions -fno-rtti -DRAG_RETRIEVE_USE_ICU=1 $alone
else
  skip 9 "compiles without exceptions and RTTI, with ICU" "libicu-dev"
fi
for compiler in $gcc $clang; do
  for mode in "-fno-exceptions -fno-rtti" "-fexceptions"; do
    if ! found $compiler; then skip 9 "damaged index files: $mode" "$compiler"; continue; fi
    works 9 "damaged index files: $compiler $mode" \
      "$compiler $(echo $W) -O1 $mode -I . $here/damaged.cpp -o '$work/damaged' && '$work/damaged'"
  done
done
works 9 "one throw and one try" \
  "test \$(grep -cE '^ *throw ' $H) = 1 && test \$(grep -cE '\\btry \\{' $H) = 1"
absent 9 "no dynamic_cast, no typeid" 'dynamic_cast|typeid' "$code"
works 10 "macros are RAG_RETRIEVE_ alone" \
  "! grep -nE '^ *# *(define|undef|pragma)' '$plain' | grep -v RAG_RETRIEVE_"
absent 11 "nothing chosen by what a file happens to see" \
  '__has_include|NDEBUG|\bassert\(|__AVX|__SSE|__ARM_NEON' "$code"
if found $gcc && pkg-config --exists icu-uc 2>/dev/null; then
  works 11 "ICU in one file of two: two namespaces, no clash" \
    "cd $here && $gcc -std=c++20 -I '$root' -c two_files_a.cpp -o '$work/mix_a.o' &&
     $gcc -std=c++20 -I '$root' -DRAG_RETRIEVE_USE_ICU=1 -c two_files_b.cpp -o '$work/mix_b.o' &&
     $gcc '$work/mix_a.o' '$work/mix_b.o' $(pkg-config --libs icu-uc) -o '$work/mix' &&
     nm -C '$work/mix' | grep -q 'rag_retrieve::v0::' &&
     nm -C '$work/mix' | grep -q 'rag_retrieve::v0_icu::' && '$work/mix'"
else
  skip 11 "ICU in one file of two" "libicu-dev and pkg-config"
fi
absent 12 "no intrinsics or target attributes outside the kernels" \
  '_mm(256|512)?_|immintrin|target\(|__attribute__|__builtin' "$plain"
absent 12 "no processor flags in the build" 'march|mavx' CMakeLists.txt
if found $gcc; then
  works 12 "files with and without -march=native link and agree" \
    "cd $here && $gcc -std=c++20 -I '$root' -O2 -c two_files_a.cpp -o '$work/base.o' &&
     $gcc -std=c++20 -I '$root' -O2 -march=native -c two_files_b.cpp -o '$work/native.o' &&
     $gcc '$work/base.o' '$work/native.o' -o '$work/native' && '$work/native'"
fi
silent 13 "options take designated initialisers: $gcc" \
  $gcc $W -I . -fsyntax-only $here/designated.cpp
silent 13 "options take designated initialisers: $clang" \
  $clang $W -I . -fsyntax-only $here/designated.cpp
silent 14 "nothing deprecated in C++23" $gcc -std=c++2b -Wdeprecated -Werror $alone
silent 14 "nothing deprecated in C++26" $clang -std=c++2c -Wdeprecated -Werror $alone
absent 15 "ASCII source, no u8 literals" '[^\x00-\x7F]|u8"'
silent 16 "compiles with an old clang" clang++-14 $W $alone
silent 16 "compiles for WebAssembly" em++ $W $alone
absent 16 "no library part that some standard libraries lack" \
  'std::(format|views|ranges|jthread|bit_cast|source_location)|atomic<std::shared_ptr' "$code"
works 17 "at most 84000 preprocessed lines" \
  "test \$($gcc -std=c++20 -E -P -x c++ $H | wc -l) -le 84000"
absent 17 "no costly standard header" \
  '<(iostream|fstream|filesystem|regex|random|thread|sstream|locale|format|ranges)>'
absent 18 "own character classes" \
  '\b(is(alpha|alnum|space|digit|upper|lower|punct)|to(lower|upper))\(' "$code"
absent 19 "no locale, no number parsing that follows it" \
  'sto[dfi]\b|strto[df]|\bato[fi]\b|setlocale' "$code"
absent 20 "own random numbers" \
  '_distribution|std::shuffle|random_device|default_random_engine' "$code"
works 22 "no test compares with == to a decimal fraction" \
  "! grep -nE '== *-?[0-9]+\\.[0-9]' tests/*.cpp"
absent 27 "opens no file" 'fopen|fstream|filesystem' "$code"

# Rules 19 to 25: the same numbers everywhere. golden.cpp prints them, golden.txt holds them.
# golden RULE WHAT RUNNER COMPILER FLAGS... : builds golden.cpp and compares what it prints
golden() {
  rule=$1 what=$2 runner=$3; shift 3
  if ! found "$1"; then skip "$rule" "$what" "$1"; return; fi
  if [ -n "$runner" ] && ! found "$runner"; then skip "$rule" "$what" "$runner"; return; fi
  if "$@" -std=c++20 -I . $here/golden.cpp -o "$work/golden" >"$work/log" 2>&1 &&
     $runner "$work/golden" "$root/data" >"$work/golden.txt" 2>>"$work/log" &&
     diff $here/golden.txt "$work/golden.txt" >>"$work/log"
  then good "$rule" "$what"; else bad "$rule" "$what"; fi
}
if [ -f $here/golden.cpp ]; then
  golden 21 "golden numbers: $gcc" "" $gcc -O1
  if found "$gcc" && locale -a 2>/dev/null | grep -qi '^de_DE\.utf-\?8'; then
    works 19 "golden numbers under a German locale" \
      "LC_ALL=de_DE.UTF-8 '$work/golden' data | diff $here/golden.txt -"
  else
    skip 19 "golden numbers under a German locale" "the locale de_DE.UTF-8"
  fi
  golden 18 "golden numbers with unsigned char: $gcc" "" $gcc -O1 -funsigned-char
  golden 21 "golden numbers: $clang" "" $clang -O1
  if has_libcxx $clang; then
    golden 21 "golden numbers: $clang, libc++" "" $clang -O1 -stdlib=libc++
  else
    skip 21 "golden numbers with libc++" "clang with libc++"
  fi
  case $(uname -m) in
    x86_64) grep -q ' fma ' /proc/cpuinfo 2>/dev/null &&
            golden 22 "golden numbers with FMA: $gcc" "" $gcc -O2 -mfma ;;
  esac
  golden 23 "golden numbers with -ffast-math: $gcc" "" $gcc -O2 -ffast-math
  golden 22 "golden numbers on ARM" qemu-aarch64 aarch64-linux-gnu-g++ -O1 -static
  golden 24 "golden numbers on a big-endian machine" qemu-s390x s390x-linux-gnu-g++ -O1 -static
  golden 25 "golden numbers on 32 bits" qemu-i386 i686-linux-gnu-g++ -O1 -static
fi

# Rules 12 and 22: the vector tests on processors that have fewer instructions than this one, or
# others. The loops are chosen at run time: `sets` says how many of the three x86-64 sets there are.
# vectors RULE WHAT SETS RUNNER COMPILER FLAGS... : builds the tests and runs them there
doctest=$(echo '#include <doctest/doctest.h>' | $gcc -M -x c++ - 2>/dev/null | tr ' ' '\n' |
          grep 'doctest/doctest\.h$' | head -1)
vectors() {
  rule=$1 what=$2 sets=$3 runner=$4; shift 4
  if ! found "$1"; then skip "$rule" "$what" "$1"; return; fi
  if ! found "${runner%% *}"; then skip "$rule" "$what" "${runner%% *}"; return; fi
  if [ -z "$doctest" ]; then skip "$rule" "$what" "doctest"; return; fi
  mkdir -p "$work/include/doctest" && cp "$doctest" "$work/include/doctest/"
  if [ "$vectors_built" != "$1" ]; then
    "$@" -std=c++20 -O1 -static -pthread -I . -I tests -isystem "$work/include" \
      -DDOCTEST_CONFIG_USE_STD_HEADERS tests/main.cpp tests/vectors.cpp tests/vector_bounds.cpp \
      tests/vector_cases.cpp -o "$work/vectors" >"$work/log" 2>&1 || { bad "$rule" "$what"; return; }
    vectors_built=$1
  fi
  if $runner "$work/vectors" >"$work/log" 2>/dev/null &&
     grep -q "instruction sets: $sets of 3" "$work/log"
  then good "$rule" "$what"; else bad "$rule" "$what"; fi
}
vectors_built=
case $(uname -m) in
  x86_64)
    vectors 12 "vectors without AVX: Nehalem" 1 "qemu-x86_64 -cpu Nehalem" $gcc
    vectors 12 "vectors without AVX2: SandyBridge" 1 "qemu-x86_64 -cpu SandyBridge" $gcc
    vectors 12 "vectors with AVX2 alone: Haswell" 2 "qemu-x86_64 -cpu Haswell" $gcc
    # One whose processor knows AVX2 and whose system does not keep its registers.
    vectors 12 "vectors with AVX2 that the system does not keep" 1 \
      "qemu-x86_64 -cpu Haswell,-xsave" $gcc ;;
esac
vectors 22 "vectors on ARM" 1 qemu-aarch64 aarch64-linux-gnu-g++
vectors 24 "vectors on a big-endian machine" 1 qemu-s390x s390x-linux-gnu-g++
vectors 25 "vectors on 32 bits" 1 qemu-i386 i686-linux-gnu-g++
# Debian's em++ cannot start threads: the tests that want some stay out. Old em++ and new Node.js
# disagree about fetch.
if found em++ && found node && [ -n "$doctest" ]; then
  em="em++ -std=c++20 -O1 -fexceptions -sALLOW_MEMORY_GROWTH -sNODERAWFS -I . -I tests"
  node="node --no-experimental-fetch"
  mkdir -p "$work/include/doctest" && cp "$doctest" "$work/include/doctest/"
  works 16 "golden numbers in WebAssembly" "$em $here/golden.cpp -o '$work/golden.js' &&
    $node '$work/golden.js' data | diff $here/golden.txt -"
  works 16 "vectors in WebAssembly" "$em -isystem '$work/include' -DDOCTEST_CONFIG_USE_STD_HEADERS \
    tests/main.cpp tests/vectors.cpp tests/vector_bounds.cpp tests/vector_cases.cpp \
    -o '$work/vectors.js' && $node '$work/vectors.js' -tce='*add-beside-search*,*selector-dropped*'"
else
  skip 16 "golden numbers and vectors in WebAssembly" "em++, node and doctest"
fi

echo "sanitizers and threads (rules 26 and 28) are in tests/long.sh"
printf '%s checks passed, %s failed, %s left out\n' $passed $failed $left_out
[ $failed = 0 ]
