#!/bin/sh
# Installs what is missing, builds pdcc and runs every test. Usage: sh testsuite/run.sh [ctest options, e.g. -R oracle]
# The last line reads `N passed, N failed, N skipped`; the exit status is 0 only when nothing failed and something ran.
set -u
root=$(cd "$(dirname "$0")/.." && pwd)
. "$root/samples/deps.sh"

need $BUILD_PACKAGES ccache clang-19 clang-format-19 dpkg-dev file g++ iproute2 libclang-19-dev libclang-rt-19-dev libcmocka-dev libonnx-testdata \
	python3 python3-numpy python3-onnx python3-venv python3-yaml patch valgrind xz-utils dataset-fashion-mnist || exit 1

# What Debian lacks, from PyPI, into a Python environment of its own (lib/pypi.py); without a network the checks that want it
# say that they were not made.
pypi() {
	[ -e "$root/build/pypi/ready" ] && return
	rm -rf "$root/build/pypi" && mkdir -p "$root/build" && /usr/bin/python3 -m venv "$root/build/pypi" &&
		timeout 240 "$root/build/pypi/bin/pip" install -q --disable-pip-version-check --retries 1 --timeout 15 \
			onnx==1.23.2 onnxruntime==1.31.1 safetensors==0.8.0 tensorboard==2.21.0 &&
		touch "$root/build/pypi/ready"
}
pypi > /dev/null 2>&1 &
export CCACHE_BASEDIR="$root" CCACHE_NOHASHDIR=1       # copies of the tree take what was compiled here
# where nothing may be written into the home, ccache and make keep what they keep here
[ -w "${HOME:-/nonexistent}" ] || export CCACHE_DIR="$root/build/ccache" XDG_CACHE_HOME="$root/build/cache"
build_pdcc "$root" -DPDCC_TESTS=ON -DCMAKE_C_COMPILER_LAUNCHER=ccache || exit 1
wait
[ -e "$root/build/pypi/ready" ] || echo "no packages from PyPI: onnxruntime, safetensors and TensorBoard are not asked"

log=$root/build/tests.log
# a suite waits for half of its time: for messages, for a program to end, for a clock
cores=$(nproc)
(cd "$root/build" && ctest --output-on-failure -j $((cores + cores / 2)) "$@") 2>&1 | tee "$log"

# ctest prints a line per test: "12/34 Test  #5: name ....   Passed    0.10 sec"
count() { grep -cE "^ *[0-9]+/[0-9]+ Test +#[0-9]+: .*$1" "$log"; }
passed=$(count ' Passed ')
skipped=$(count '\*\*\*Skipped')
total=$(grep -cE '^ *[0-9]+/[0-9]+ Test +#[0-9]+: ' "$log")
failed=$((total - passed - skipped))
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ] && [ "$passed" -gt 0 ]
