# Compiler and linker flags of every target, as one interface library.
add_library(kvasir_options INTERFACE)
target_include_directories(kvasir_options INTERFACE ${PROJECT_SOURCE_DIR}/src)
target_compile_options(kvasir_options INTERFACE
  -Wall -Wextra -Wconversion
  # The product is built by g++; clang builds the fuzzers alone, and its other warnings are for people.
  $<$<CXX_COMPILER_ID:GNU>:-Werror>
  # A fused multiply-add where the source has none would make the same sum differ between two code
  # paths; results here must be equal bit for bit, so only explicit FMA is allowed.
  -ffp-contract=off
  -fstack-protector-strong)
target_compile_definitions(kvasir_options INTERFACE KVASIR_VERSION="${PROJECT_VERSION}")
if(KVASIR_SANITIZE)
  target_compile_options(kvasir_options INTERFACE -fsanitize=${KVASIR_SANITIZE}
    -fno-omit-frame-pointer -fno-sanitize-recover=all
    # g++ 12 sees uninitialized values in the standard library once it is instrumented.
    $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)
  if(KVASIR_SANITIZE STREQUAL "thread" AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # Boost.Asio has fences, which the thread sanitizer does not see; locks order what is shared here.
    target_compile_options(kvasir_options INTERFACE -Wno-tsan)
  endif()
  target_link_options(kvasir_options INTERFACE -fsanitize=${KVASIR_SANITIZE})
elseif(CMAKE_BUILD_TYPE MATCHES "Rel")
  target_compile_options(kvasir_options INTERFACE -D_FORTIFY_SOURCE=2)
endif()
if(KVASIR_COVERAGE)
  # Counters are added up atomically: the engine, its workers and the HTTP threads share them.
  target_compile_options(kvasir_options INTERFACE --coverage -fprofile-update=atomic
    -Wno-maybe-uninitialized)
  target_link_options(kvasir_options INTERFACE --coverage)
endif()
if(KVASIR_BUILD_FUZZERS)
  if(NOT CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
    message(FATAL_ERROR "KVASIR_BUILD_FUZZERS expects clang, came ${CMAKE_CXX_COMPILER_ID}: use scripts/fuzz")
  endif()
  # Every room tells libFuzzer which branches an input took.
  target_compile_options(kvasir_options INTERFACE -fsanitize=fuzzer-no-link)
endif()
target_link_options(kvasir_options INTERFACE -Wl,-z,relro,-z,now)

# The product binary carries its C++ runtime, so that it runs where only Debian's base is installed.
add_library(kvasir_static_runtime INTERFACE)
if(NOT KVASIR_SANITIZE)
  target_link_options(kvasir_static_runtime INTERFACE -static-libstdc++ -static-libgcc -pie)
endif()
