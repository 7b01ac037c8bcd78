// copy.cu: GB/s of a copy of 1 GiB on the device, bytes read and written, the best of 20.
#include <cstdio>
#include <cuda_runtime.h>

int main()
{
	const size_t bytes = (size_t)1 << 30;
	float best = 0;
	void *a, *b;
	cudaEvent_t from, to;

	if (cudaMalloc(&a, bytes) || cudaMalloc(&b, bytes) || cudaMemset(a, 1, bytes) || cudaEventCreate(&from) ||
		cudaEventCreate(&to)) {
		fprintf(stderr, "copy: %s\n", cudaGetErrorString(cudaGetLastError()));
		return 1;
	}
	for (int i = 0; i < 20; i++) {
		float ms;

		cudaEventRecord(from);
		cudaMemcpyAsync(b, a, bytes, cudaMemcpyDeviceToDevice);
		cudaEventRecord(to);
		if (cudaEventSynchronize(to) || cudaEventElapsedTime(&ms, from, to)) {
			fprintf(stderr, "copy: %s\n", cudaGetErrorString(cudaGetLastError()));
			return 1;
		}
		if (2e-6 * (double)bytes / ms > best)
			best = 2e-6 * (double)bytes / ms;
	}
	printf("%.0f\n", best);
	return 0;
}
