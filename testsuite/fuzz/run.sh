#!/bin/sh
# Coverage-guided fuzzing of the readers under AddressSanitizer and UndefinedBehaviorSanitizer.
# Usage: sh testsuite/fuzz/run.sh [seconds each, default 600 | runs=N] [onnx|yaml|pdir|data|weights|csv ...]
# Seeds are the project's own models, cluster files and IR files, small files of the other kinds, and what was found before
# (testsuite/fuzz/found).
# runs=N tries N inputs, the same ones every time; SEED=n takes others. Exit status 0 when nothing was found.
# What was kept of earlier runs (corpora/) is read with the seeds. KEEP=1 keeps what this run reached, as few files as reach it all, and
# writes what it took into hours.txt, also where something was found. LATE=n: seconds an input may take, for a busy machine (10).
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

keep() { # target corpus status
	rm -rf "$2.least"
	mkdir -p "$2.least" "$here/corpora"
	ASAN_OPTIONS=detect_leaks=0 "$build/fuzz_$1" -merge=1 -timeout="${LATE:-10}" -rss_limit_mb=2048 "$2.least" "$2" >"$build/$1.merge.log" 2>&1
	tar --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner -C "$2.least" -cf - . | xz -9e >"$here/corpora/$1.tar.xz"
	inputs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$build/$1.log")
	word="nothing found"
	[ "$3" = 0 ] || word="found something"
	echo "$(date +%F) $1, seed $seed: $(cat "$build/$1.cpu") CPU seconds, ${inputs:-?} inputs, $word; $(find "$2.least" -type f | wc -l) files kept" \
		>>"$here/hours.txt"
}

for f in "$@"; do
	corpus=$build/corpus-$f
	rm -rf "$corpus"
	mkdir -p "$corpus"
	find "$here/found" -name "$f-*" -exec cp {} "$corpus" \;
	[ ! -f "$here/corpora/$f.tar.xz" ] || tar -C "$corpus" -xJf "$here/corpora/$f.tar.xz"
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
	status=0
	ASAN_OPTIONS=detect_leaks=0 python3 "$here/cpu.py" "$build/$f.cpu" "$build/fuzz_$f" -seed="$seed" "$limit" -timeout="${LATE:-10}" -reload=0 \
		-rss_limit_mb=2048 -max_len=65536 -artifact_prefix="$build/found-$f-" -print_final_stats=1 "$corpus" >"$build/$f.log" 2>&1 || status=$?
	[ -z "${KEEP:-}" ] || keep "$f" "$corpus" "$status"
	[ $status = 0 ] || { tail -n 40 "$build/$f.log"; echo "fuzz_$f: found something, see $build"; exit 1; }
	grep -E 'stat::(number_of_executed_units|peak_rss_mb)' "$build/$f.log"
done
[ -z "${KEEP:-}" ] || awk '/CPU seconds/ { all += $5 } END { printf "fuzz: %.2f CPU hours so far\n", all / 3600 }' "$here/hours.txt"
echo "fuzz: nothing found"
