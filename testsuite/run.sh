#!/bin/sh
# Installs what is missing, builds pdcc and runs every test. Usage: sh testsuite/run.sh [ctest options, e.g. -R oracle]
# The last line reads `N passed, N failed, N skipped`; the exit status is 0 only when nothing failed and something ran.
set -u
root=$(cd "$(dirname "$0")/.." && pwd)
. "$root/samples/deps.sh"

need $BUILD_PACKAGES ccache clang-19 libclang-19-dev libclang-rt-19-dev libcmocka-dev libonnx-testdata \
	python3 python3-numpy python3-onnx patch dataset-fashion-mnist || exit 1
build_pdcc "$root" -DPDCC_TESTS=ON -DCMAKE_C_COMPILER_LAUNCHER=ccache || exit 1

log=$root/build/tests.log
(cd "$root/build" && ctest --output-on-failure -j "$(nproc)" "$@") 2>&1 | tee "$log"

# ctest prints a line per test: "12/34 Test  #5: name ....   Passed    0.10 sec"
count() { grep -cE "^ *[0-9]+/[0-9]+ Test +#[0-9]+: .*$1" "$log"; }
passed=$(count ' Passed ')
skipped=$(count '\*\*\*Skipped')
total=$(grep -cE '^ *[0-9]+/[0-9]+ Test +#[0-9]+: ' "$log")
failed=$((total - passed - skipped))
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ] && [ "$passed" -gt 0 ]
