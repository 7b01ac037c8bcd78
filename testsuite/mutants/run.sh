#!/bin/sh
# Breaks the code on purpose, one patch at a time, and requires the check that the patch names to fail.
# Usage: sh testsuite/mutants/run.sh [NAME...]      the patches are testsuite/mutants/NAME.patch
# A patch starts with lines `check: COMMAND`, run in the root of a copy of the tree with PDCC set to the broken program
# (`ctest REGEX` stands for the tests of that name in the copy's build folder). Last line: `N passed, N failed`.
set -u
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT INT TERM
[ $# -gt 0 ] || set -- $(cd "$here" && ls ./*.patch | sed 's,^\./,,; s,\.patch$,,')

copy=$work/tree
mkdir "$copy"
(cd "$root" && git ls-files -z | xargs -0 cp --parents -t "$copy")
build() {
	cmake -S "$copy" -B "$copy/build" -DPDCC_TESTS=ON -DCMAKE_C_COMPILER_LAUNCHER="$(command -v ccache || true)" >"$work/log" 2>&1 &&
	cmake --build "$copy/build" -j "$(nproc)" >>"$work/log" 2>&1
}
passed=0 failed=0
verdict() { echo "$1 $2"; [ "$1" = ok ] && passed=$((passed + 1)) || failed=$((failed + 1)); }
build || { tail -n 20 "$work/log"; echo "the unbroken tree does not build"; exit 1; }

for m in "$@"; do
	patch=$here/$m.patch
	check=$(sed -n 's/^check: //p' "$patch" | head -n 1)
	if ! (cd "$copy" && patch -s -p1 <"$patch"); then verdict "FAIL (does not apply)" "$m"; continue; fi
	if ! build; then
		verdict "FAIL (does not build)" "$m"
	else
		case $check in
		"ctest "*) (cd "$copy/build" && ctest -R "${check#ctest }") >"$work/out" 2>&1 ;;
		*) (cd "$copy" && PDCC="$copy/build/pdcc" sh -c "$check") >"$work/out" 2>&1 ;;
		esac
		status=$?
		if [ "$status" = 0 ]; then
			verdict "FAIL (survived: $check)" "$m"
		elif grep -q 'No tests were found' "$work/out"; then
			verdict "FAIL (no such check: $check)" "$m"
		else
			verdict ok "$m"
		fi
	fi
	(cd "$copy" && patch -s -R -p1 <"$patch")
done
echo "$passed passed, $failed failed"
[ "$failed" = 0 ] && [ "$passed" -gt 0 ]
