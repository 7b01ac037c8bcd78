#!/bin/sh
# Trains samples/lenet on Fashion-MNIST (Debian: dataset-fashion-mnist) on two devices until 88 % of the 10,000 images for
# evaluation are recognised. Exits non-zero unless that is reached. Usage: sh samples/fashion/train.sh [build folder [pdcc options]]
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
out=${1:-$root/build/fashion}
[ $# -gt 0 ] && shift
. "$root/samples/deps.sh"

need $BUILD_PACKAGES dataset-fashion-mnist
[ -n "${PDCC:-}" ] || build_pdcc "$root" -DPDCC_TESTS=OFF

data=$out-data
mkdir -p "$data"
for f in train-images-idx3-ubyte train-labels-idx1-ubyte t10k-images-idx3-ubyte t10k-labels-idx1-ubyte; do
	[ -s "$data/$f" ] || gzip -dc "/usr/share/datasets/fashion-mnist/$f.gz" >"$data/$f"
done

"${PDCC:-$root/build/pdcc}" "$root/samples/lenet/model.onnx" --cluster "$root/samples/fashion/cluster.yaml" \
	--train "$root/samples/fashion/train.yaml" --force -o "$out" \
	--data "x=$data/train-images-idx3-ubyte" --data "labels=$data/train-labels-idx1-ubyte" \
	--eval "x=$data/t10k-images-idx3-ubyte" --eval "labels=$data/t10k-labels-idx1-ubyte" "$@"
make -s -C "$out"
make -s -C "$out" run
awk '{ best = $4 / $5 > best ? $4 / $5 : best }
	END { printf "fashion: accuracy %.4f\n", best; exit !(best >= 0.88) }' "$out/run/latest/eval.txt"
