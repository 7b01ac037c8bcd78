#!/bin/sh
# Coverage-guided fuzzing of the readers under AddressSanitizer and UndefinedBehaviorSanitizer.
# Usage: sh testsuite/fuzz/run.sh [seconds each, default 600 | runs=N] [onnx|yaml|pdir|data|weights|csv ...]
# Seeds are the project's own models, cluster files and IR files, small files of the other kinds, and what was found before
# (testsuite/fuzz/found).
# runs=N tries N inputs, the same ones every time; SEED=n takes others. Exit status 0 when nothing was found.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
case ${1:-600} in
runs=*) limit=-runs=${1#runs=} ;;
*) limit=-max_total_time=${1:-600} ;;
esac
seed=${SEED:-1}
[ $# -gt 0 ] && shift
[ $# -gt 0 ] || set -- onnx yaml pdir data weights csv
build=$root/build/fuzz
clang=$(command -v clang-19 || command -v clang || true)
[ -n "$clang" ] || { echo "fuzz: no clang found, skipped"; exit 77; }
mkdir -p "$root/build"
cmake -S "$root" -B "$build" -DCMAKE_C_COMPILER="$clang" -DPDCC_FUZZ=ON -DPDCC_TESTS=OFF -DCMAKE_C_COMPILER_LAUNCHER="$(command -v ccache || true)" -DCMAKE_BUILD_TYPE=RelWithDebInfo >"$build.log" 2>&1 &&
cmake --build "$build" -j "$(nproc)" --target fuzz_onnx fuzz_yaml fuzz_pdir fuzz_data fuzz_weights fuzz_csv >>"$build.log" 2>&1 || { tail -n 20 "$build.log"; exit 1; }

for f in "$@"; do
	corpus=$build/corpus-$f
	rm -rf "$corpus"
	mkdir -p "$corpus"
	find "$here/found" -name "$f-*" -exec cp {} "$corpus" \;
	case $f in
	onnx) find "$root/samples" "$root/testsuite" -name '*.onnx' -size -64k -exec cp {} "$corpus" \;
		python3 "$root/testsuite/tool/err/run.py" --models "$corpus" ;;
	yaml) find "$root/samples" "$root/testsuite" -name '*.yaml' | while read -r y; do
			{ printf 1; cat "$y"; } >"$corpus/c-$(echo "$y" | cksum | cut -d' ' -f1)"
			{ printf 0; cat "$y"; } >"$corpus/t-$(echo "$y" | cksum | cut -d' ' -f1)"
		done ;;
	pdir) find "$root/testsuite" -name '*.pdir' -exec cp {} "$corpus" \; ;;
	esac
	echo "fuzz_$f: $limit, seed $seed, $(find "$corpus" -type f | wc -l) seeds"
	ASAN_OPTIONS=detect_leaks=0 "$build/fuzz_$f" -seed="$seed" "$limit" -timeout=10 -reload=0 -rss_limit_mb=2048 \
		-max_len=65536 -artifact_prefix="$build/found-$f-" -print_final_stats=1 "$corpus" >"$build/$f.log" 2>&1 ||
		{ tail -n 40 "$build/$f.log"; echo "fuzz_$f: found something, see $build"; exit 1; }
	grep -E 'stat::(number_of_executed_units|peak_rss_mb)' "$build/$f.log"
done
echo "fuzz: nothing found"
