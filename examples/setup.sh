# Sourced by examples/run.sh and tests/run.sh, which set `root`: gets what is missing, and builds.
# Names are those of Debian's and Ubuntu's packages.

compiler=
for name in "${CXX:-c++}" g++ clang++; do
  if command -v "$name" >/dev/null 2>&1; then compiler=$name; break; fi
done
missing=   # packages without which nothing can be built
wished=    # packages without which less is built or checked

has_command() {
  for wanted; do if command -v "$wanted" >/dev/null 2>&1; then return 0; fi; done
  return 1
}
has_header() {
  [ -n "$compiler" ] && echo "#include <$1>" | "$compiler" -E -x c++ - >/dev/null 2>&1
}

# want_tools : what every build needs
want_tools() {
  [ -n "$compiler" ] || missing="$missing g++"
  has_command cmake || missing="$missing cmake"
  has_command ninja make || missing="$missing ninja-build"
  has_header nlohmann/json.hpp || missing="$missing nlohmann-json3-dev"
  has_header CLI/CLI.hpp || missing="$missing libcli11-dev"
  has_header unicode/utypes.h || wished="$wished libicu-dev"
  has_header libstemmer.h || wished="$wished libstemmer-dev"
}

# install_missing : by apt as root or with a sudo that asks nothing; elsewhere says what to install
install_missing() {
  [ -n "$missing$wished" ] || return 0
  as_root=
  if [ "$(id -u)" != 0 ]; then as_root="sudo -n"; fi
  if has_command apt-get && $as_root true 2>/dev/null; then
    echo "installing:$missing$wished" >&2
    apt="$as_root env DEBIAN_FRONTEND=noninteractive apt-get -q"
    if { $apt update; $apt install -y --no-install-recommends $missing $wished; } \
      >"$root/build/install.log" 2>&1 </dev/null; then return 0; fi
    tail -20 "$root/build/install.log" >&2
    echo "installing failed; all of what apt said is in build/install.log" >&2
  elif has_command apt-get; then
    echo "please install what is missing: sudo apt-get install$missing$wished" >&2
  else
    echo "please install what is missing; Debian's and Ubuntu's packages are called:$missing$wished" >&2
  fi
  [ -z "$missing" ]  # wishes alone stop nothing
}

# build NAME TARGET... : configures where needed and builds; silent unless it fails.
# `want_NAME` says what the build needs; it is asked until a build has succeeded.
build() {
  name=$1; shift
  mkdir -p "$root/build" || return 1
  if ! grep -qs "^CMAKE_HOME_DIRECTORY:INTERNAL=$root\$" "$root/build/CMakeCache.txt"; then
    rm -rf "$root/build/CMakeCache.txt" "$root/build/CMakeFiles" "$root"/build/ready_*
  fi
  if [ ! -f "$root/build/ready_$name" ]; then
    "want_$name"
    install_missing || return 1
    generator=
    if [ ! -f "$root/build/CMakeCache.txt" ] && has_command ninja; then generator="-G Ninja"; fi
    logged cmake -S "$root" -B "$root/build" $generator -D CMAKE_BUILD_TYPE=Release || return 1
  fi
  jobs=$(getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2)
  if [ ! -f "$root/build/ready_$name" ]; then
    echo "building the $name; the first time takes some minutes ..." >&2
  fi
  logged cmake --build "$root/build" --parallel "$jobs" --target "$@" || return 1
  : >"$root/build/ready_$name"
}

logged() {
  if "$@" >"$root/build/build.log" 2>&1 </dev/null; then return 0; fi
  cat "$root/build/build.log" >&2
  echo "failed: $*" >&2
  return 1
}
