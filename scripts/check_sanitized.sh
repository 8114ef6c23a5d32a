# Shared by check-asan and check-tsan. Sourced from the repository's root with `set -euo pipefail`.

# The unit tests' targets, one for each room.
sanitized_units() {
  local room
  for room in tests/unit/*/; do
    printf 'unit_%s ' "$(basename "$room")"
  done
}

# check_sanitized PRESET ASKED...: builds the preset and runs its tiers (cpp, e2e; both where none is
# named). Each test that a sanitizer has something to say about fails.
check_sanitized() {
  local preset=$1 status=0 tier
  local jobs=${KVASIR_CHECK_JOBS:-$(nproc)}
  shift
  [ $# -gt 0 ] || set -- cpp e2e
  install_packages scripts/packages-build.txt
  install_packages scripts/packages-test.txt
  fetch_default_model
  KVASIR_MODEL_CACHE=$(model_cache)
  # Counts and lengths of the load tests, as a share of what they are in ./test.
  export KVASIR_MODEL_CACHE KVASIR_TEST_SCALE="${KVASIR_TEST_SCALE:-0.2}"
  configure "$preset"
  for tier in "$@"; do
    case "$tier" in
      cpp)
        # shellcheck disable=SC2046,SC2086
        build "$preset" -j "$jobs" ${KVASIR_CHECK_TARGETS:-simulation regress $(sanitized_units)}
        say "running the unit, simulation and regress tiers of build/$preset"
        ctest --test-dir "build/$preset" -j "$jobs" --output-on-failure --progress \
          -L '^(unit_.*|simulation|regress)$' -R "${KVASIR_CHECK_TESTS:-.}" --no-tests=error || status=1
        ;;
      e2e)
        build "$preset" -j "$jobs" kvasir
        python_env tests/e2e/requirements.txt .venv/test
        say "running the e2e tier with build/$preset/kvasir"
        # shellcheck disable=SC2086
        KVASIR_BINARY="$PWD/build/$preset/kvasir" .venv/test/bin/python -m pytest -q \
          -n "$jobs" --dist loadfile --timeout 1800 -p no:cacheprovider \
          ${KVASIR_CHECK_E2E:-tests/e2e} || status=1
        ;;
      *) die "expected cpp or e2e, got '$tier'" ;;
    esac
  done
  return "$status"
}
