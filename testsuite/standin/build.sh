#!/bin/sh
# build.sh DIR: makes DIR a folder that `make CUDA=DIR` of a GPU build takes for the CUDA toolkit: nvcc, headers and
# libraries that compute on the CPU (README.md). STANDIN_WATCH=1: what is compiled with -fsanitize=thread is watched by it,
# for races in kernels; STANDIN_WATCH=order: for what is not ordered between streams, host and messages.
set -e
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
libraries='cublasLt cublas cudnn nccl'
watch=
if [ -n "$STANDIN_WATCH" ]; then
	libraries="$libraries tsan"     # the linker finds this one before the compiler's
	watch="-DSTANDIN_WATCH $here/watch.c $here/races.c"
fi
mkdir -p "$1/bin" "$1/lib64"
if [ "$STANDIN_WATCH" = order ]; then
	OMPI_CC=${CC:-gcc} MPICH_CC=${CC:-gcc} mpicc -std=c11 -D_GNU_SOURCE -O2 -g -Wall -Wextra -fvisibility=hidden -fPIC -I"$here/include" \
		-DSTANDIN_WATCH -DSTANDIN_ORDER -c -o "$1/lib64/order_host.o" "$here/order_host.c"
	watch="-DSTANDIN_WATCH -DSTANDIN_ORDER $here/watch.c $here/order.c $1/lib64/order_host.o"
fi
ln -sfn "$here/nvcc" "$1/bin/nvcc"
ln -sfn "$here/include" "$1/include"
${CC:-gcc} -std=c11 -D_GNU_SOURCE -O2 -g -Wall -Wextra -fopenmp -fvisibility=hidden -fPIC -shared -I"$here/include" -I"$root/runtime" -I"$root/runtime/cpu" \
	-o "$1/lib64/libcudart.so.new" "$here"/standin*.c "$root"/runtime/cpu/cpu.c "$root"/runtime/cpu/cpu_half.c "$root"/runtime/cpu/cpu_product.c "$root"/runtime/cpu/cpu_conv.c "$root"/runtime/cpu/cpu_winograd.c \
	"$root"/runtime/cpu/cpu_onednn*.c \
	$watch -ldnnl -lm $STANDIN_FLAGS
mv "$1/lib64/libcudart.so.new" "$1/lib64/libcudart.so"
for l in $libraries; do
	echo "INPUT(libcudart.so)" > "$1/lib64/lib$l.so"
done
