#!/bin/sh
# Breaks the code on purpose, one patch at a time, and requires the check that the patch names to fail.
# Usage: sh testsuite/mutants/run.sh [-j WORKERS] [--share N | NAME...]      the patches are testsuite/mutants/NAME.patch
# --share N takes one patch in N; which ones follows from the bytes of all sources.
# A patch starts with a line `check: COMMAND`, run in the root of a copy of the tree with PDCC set to the broken program
# (`ctest REGEX` stands for the tests of that name in the copy's build folder). Every distinct check must pass in the
# unbroken copy first. A check that could not run (exit 77, 124 and above) has seen nothing. Last line: `N passed, N failed`.
set -u
unset PDCC_SOME        # a check takes all its cases
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
jobs=$(nproc)
if [ "${1:-}" = -j ]; then jobs=$2; shift 2; fi
share=1
if [ "${1:-}" = --share ]; then share=$2; shift 2; fi
turn=$(cd "$root" && git ls-files -z | xargs -0 cat | cksum | cut -d' ' -f1)
[ $# -gt 0 ] || set -- $(cd "$here" && ls ./*.patch | sed 's,^\./,,; s,\.patch$,,' |
	awk -v n="$share" -v turn="$turn" 'NR % n == turn % n')
[ "$share" = 1 ] || echo "one patch in $share: $#"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'kill $(jobs -p); exit 1' INT TERM

check_of() { sed -n 's/^check: //p' "$here/$1.patch" | head -n 1; }

# Builds what a check needs in folder $1: its test, everything for other tests of CTest, or the two programs.
build() {
	case $2 in
	"ctest unit/"*) set -- "$1" --target pdcc pdcc-opt "${2#ctest unit/}" ;;
	"ctest "*) set -- "$1" ;;
	*) set -- "$1" --target pdcc pdcc-opt ;;
	esac
	copy=$1; shift
	CCACHE_BASEDIR=$copy CCACHE_NOHASHDIR=1 cmake --build "$copy/build" -j "$threads" "$@" >"$copy.log" 2>&1 </dev/null
}

# Runs check $2 in folder $1: its exit status. A test that was left out has not run.
run() {
	case $2 in
	"ctest unit/"*) (cd "$1/build" && timeout 600 ctest -R "^${2#ctest }\$") >"$1.out" 2>&1 </dev/null ;;
	"ctest "*) (cd "$1/build" && timeout 600 ctest -R "${2#ctest }") >"$1.out" 2>&1 </dev/null ;;
	*) (cd "$1" && PDCC="$1/build/pdcc" timeout 600 sh -c "$2") >"$1.out" 2>&1 </dev/null ;;
	esac
	status=$?
	if grep -qE 'No tests were found|\*\*\*(Skipped|Not Run)' "$1.out"; then status=77; fi
	return $status
}

verdict() { echo "$1 $2"; case $1 in ok) : >"$work/passed.$2" ;; *) : >"$work/failed.$2" ;; esac; }

# One mutant $2 in folder $1.
mutant() {
	check=$(check_of "$2")
	base=$(cat "$work/base.$(echo "$check" | cksum | cut -d' ' -f1)")
	case $base in
	0) ;;
	build) verdict "FAIL (the unbroken copy does not build)" "$2"; return ;;
	*) verdict "FAIL (the check fails without the mutant, exit $base: $check)" "$2"; return ;;
	esac
	if ! (cd "$1" && patch -s -p1 --dry-run <"$here/$2.patch") >"$1.log" 2>&1; then verdict "FAIL (does not apply)" "$2"; return; fi
	(cd "$1" && patch -s -p1 <"$here/$2.patch")
	if ! build "$1" "$check"; then
		verdict "FAIL (does not build)" "$2"
	else
		run "$1" "$check"
		status=$?
		if [ "$status" = 0 ]; then
			verdict "FAIL (survived: $check)" "$2"
		elif [ "$status" = 77 ] || [ "$status" -ge 124 ]; then
			verdict "FAIL (the check could not run, exit $status: $check)" "$2"
		else
			verdict ok "$2"
		fi
	fi
	(cd "$1" && patch -s -R -p1 <"$here/$2.patch")
}

# The checks on the unbroken copy, then the mutants; workers take what nobody has taken yet.
worker() {
	tree=$work/tree$1; shift
	while read -r check; do
		sum=$(echo "$check" | cksum | cut -d' ' -f1)
		mkdir "$work/check.$sum" 2>/dev/null || continue
		if build "$tree" "$check"; then
			run "$tree" "$check"
			status=$?
		else
			tail -n 20 "$tree.log"
			status=build
		fi
		echo $status >"$work/base.$sum"
	done <"$work/checks"
	while read -r check; do         # what another worker still runs
		while [ ! -s "$work/base.$(echo "$check" | cksum | cut -d' ' -f1)" ]; do sleep 0.2; done
	done <"$work/checks"
	for m in "$@"; do
		mkdir "$work/mutant.$m" 2>/dev/null && mutant "$tree" "$m"
	done
}

for m in "$@"; do
	[ -n "$(check_of "$m")" ] || { echo "$m: no such patch, or it names no check"; exit 1; }
done
for m in "$@"; do check_of "$m"; done | sort -u >"$work/checks"
[ "$jobs" -le $# ] || jobs=$#
threads=$((($(nproc) + jobs - 1) / jobs))
launcher=$(command -v ccache || true)
generator=$(command -v ninja >/dev/null && echo Ninja || echo "Unix Makefiles")
for i in $(seq "$jobs"); do
	mkdir "$work/tree$i"
	(cd "$root" && git ls-files -z | xargs -0 cp -P --parents -t "$work/tree$i")
	cmake -G "$generator" -S "$work/tree$i" -B "$work/tree$i/build" -DPDCC_TESTS=ON -DPDCC_TESTS_WHOLE=ON \
		-DCMAKE_C_COMPILER_LAUNCHER="$launcher" >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
	worker "$i" "$@" &
done
wait
passed=$(find "$work" -maxdepth 1 -name 'passed.*' | wc -l)
failed=$(find "$work" -maxdepth 1 -name 'failed.*' | wc -l)
echo "$passed passed, $failed failed"
[ "$passed" = $# ]
