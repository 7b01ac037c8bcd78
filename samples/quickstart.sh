#!/bin/sh
# One command from a fresh Debian machine to a training run: installs what is missing, builds pdcc, compiles the sample
# samples/mlp for two pipeline stages with two replicas each, and trains it on Fashion-MNIST on four local devices.
# Exits non-zero unless the last loss is below half of the first. Usage: sh samples/quickstart.sh [folder of the program]
# PDCC=FILE: a pdcc that is built or installed already; nothing is written beside this script then.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
out=${1:-$root/build/quickstart}
. "$root/samples/deps.sh"

if [ -z "${PDCC-}" ]; then
	[ -w "$root" ] || { echo "$root cannot be written; PDCC=FILE sh $0 FOLDER takes a pdcc that is built already" >&2; exit 1; }
	need $BUILD_PACKAGES dataset-fashion-mnist
	build_pdcc "$root" -DPDCC_TESTS=OFF
else
	need dataset-fashion-mnist
fi

mkdir -p "$out"
data=$out-data
mkdir -p "$data"
for f in train-images-idx3-ubyte train-labels-idx1-ubyte; do
	[ -s "$data/$f" ] || gzip -dc "/usr/share/datasets/fashion-mnist/$f.gz" >"$data/$f"
done

start=$(date +%s)
"${PDCC:-$root/build/pdcc}" "$root/samples/mlp/model.onnx" --cluster "$root/samples/mlp/cluster.yaml" \
	--train "$root/samples/mlp/train.yaml" --plan 2-2 --force -o "$out" \
	--data "x=$data/train-images-idx3-ubyte" --data "labels=$data/train-labels-idx1-ubyte"
make -s -C "$out"
make -s -C "$out" run
seconds=$(($(date +%s) - start))

# C: where a decimal comma is usual, awk reads 0.5 as 0
LC_ALL=C awk -v t="$seconds" '
	NR == 1 { first = $2 }
	{ last = $2 }
	END {
		if (NR < 2 || !(last < first / 2)) { printf "quickstart: the loss did not fall by half: %s -> %s\n", first, last; exit 1 }
		printf "quickstart: loss %.4f -> %.4f in %d s on 4 devices\n", first, last, t
	}' "$out/run/latest/losses.txt"
