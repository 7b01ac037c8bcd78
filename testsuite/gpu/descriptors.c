/* descriptors.c: in front of NVIDIA's libraries where there is no GPU (LD_PRELOAD): the device, its memory and what the libraries ask of
 * it are made up, all else is theirs. So a program that is started with --check makes every descriptor by the libraries' own code, which
 * refuses sizes, types and combinations that it does not know. cuDNN's graphs of operations are planned for an H100, whose properties it
 * is told. Nothing is computed. */
#define _GNU_SOURCE
#include <cublasLt.h>
#include <cublas_v2.h>
#include <cuda_runtime_api.h>
#include <cudnn.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- a device ---- */

cudaError_t cudaGetDeviceCount(int *n)
{
	*n = 1;
	return cudaSuccess;
}
cudaError_t cudaSetDevice(int d) { return d ? cudaErrorInvalidValue : cudaSuccess; }
cudaError_t cudaGetLastError(void) { return cudaSuccess; }

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *p, int d)
{
	memset(p, 0, sizeof *p);
	snprintf(p->name, sizeof p->name, "no GPU");
	p->major = 9;
	return cudaSetDevice(d);
}

cudaError_t cudaMemGetInfo(size_t *unused, size_t *total)
{
	*unused = *total = (size_t)64 << 30;
	return cudaSuccess;
}

static cudaError_t memory(void **p, size_t bytes)
{
	return posix_memalign(p, 256, bytes ? bytes : 1) ? cudaErrorMemoryAllocation : cudaSuccess;
}

cudaError_t cudaMalloc(void **p, size_t bytes) { return memory(p, bytes); }
cudaError_t cudaMallocHost(void **p, size_t bytes) { return memory(p, bytes); }
cudaError_t cudaFree(void *p)
{
	free(p);
	return cudaSuccess;
}
cudaError_t cudaFreeHost(void *p)
{
	free(p);
	return cudaSuccess;
}
cudaError_t cudaHostRegister(void *p, size_t bytes, unsigned flags)
{
	(void)p, (void)bytes, (void)flags;
	return cudaErrorNotSupported;
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind, cudaStream_t s)
{
	(void)kind, (void)s;
	memmove(to, from, bytes);
	return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void *to, int byte, size_t bytes, cudaStream_t s)
{
	(void)s;
	memset(to, byte, bytes);
	return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *s, unsigned flags)
{
	(void)flags;
	*s = calloc(1, 64);
	return cudaSuccess;
}
cudaError_t cudaStreamQuery(cudaStream_t s)
{
	(void)s;
	return cudaSuccess;
}

/* ---- what the libraries look at the device for ---- */

static void *real(const char *name)
{
	void *f = dlsym(RTLD_NEXT, name);

	if (!f)
		abort();
	return f;
}

cublasStatus_t cublasCreate_v2(cublasHandle_t *h)
{
	*h = calloc(1, 64);
	return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSetStream_v2(cublasHandle_t h, cudaStream_t s)
{
	(void)h, (void)s;
	return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSetWorkspace_v2(cublasHandle_t h, void *p, size_t n)
{
	(void)h, (void)p, (void)n;
	return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtCreate(cublasLtHandle_t *h)
{
	*h = calloc(1, 64);
	return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t h, cublasLtMatmulDesc_t d, cublasLtMatrixLayout_t a,
	cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t y, cublasLtMatmulPreference_t p,
	int asked, cublasLtMatmulHeuristicResult_t found[], int *n)
{
	(void)h, (void)d, (void)a, (void)b, (void)c, (void)y, (void)p, (void)asked;
	memset(found, 0, sizeof *found);
	*n = 1;
	return CUBLAS_STATUS_SUCCESS;
}

cudnnStatus_t cudnnCreate(cudnnHandle_t *h)
{
	*h = calloc(1, 1 << 20);
	return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnSetStream(cudnnHandle_t h, cudaStream_t s)
{
	(void)h, (void)s;
	return CUDNN_STATUS_SUCCESS;
}

/* The sizes are there before it looks for a device. */
cudnnStatus_t cudnnGetRNNTempSpaceSizes(cudnnHandle_t h, cudnnRNNDescriptor_t r, cudnnForwardMode_t mode,
	cudnnRNNDataDescriptor_t x, size_t *work, size_t *reserve)
{
	cudnnStatus_t (*f)(cudnnHandle_t, cudnnRNNDescriptor_t, cudnnForwardMode_t, cudnnRNNDataDescriptor_t, size_t *,
		size_t *) = real("cudnnGetRNNTempSpaceSizes");
	const cudnnStatus_t s = f(h, r, mode, x, work, reserve);

	return s == CUDNN_STATUS_EXECUTION_FAILED_CUDART ? CUDNN_STATUS_SUCCESS : s;
}

/* ---- graphs of operations: an H100's properties in the place of a handle ---- */

static cudnnBackendDescriptor_t h100(void)
{
	static const char text[] =
		"{\"deviceName\": \"NVIDIA H100 80GB HBM3\", \"deviceVer\": 900, \"driverVer\": 13000, \"multiProcessorCount\": 132,"
		"\"smClockRateKHz\": 1980000, \"memClockRateKHz\": 2619000, \"l2CacheSize\": 52428800, \"totalGlobalMem\": 85899345920,"
		"\"maxGridSize\": [2147483647, 65535, 65535], \"maxBlockSize\": [1024, 1024, 64], \"maxThreadsPerBlock\": 1024,"
		"\"maxThreadsPerSM\": 2048, \"maxCtasPerSM\": 32, \"warpSize\": 32, \"regsPerBlock\": 65536, \"maxRegistersPerSM\": 65536,"
		"\"maxSharedMemoryPerBlock\": 49152, \"maxSharedMemoryPerBlockOptin\": 232448, \"reservedSharedMemoryPerBlock\": 1024,"
		"\"supportCoopLaunch\": 1, \"isTccDriver\": 0, \"pciDeviceId\": 0, \"cudaDeviceId\": 0}";
	static cudnnBackendDescriptor_t made;

	if (!made && (cudnnBackendCreateDescriptor(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, &made) ||
			     cudnnBackendSetAttribute(made, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR,
				     sizeof text - 1, text) ||
			     cudnnBackendFinalize(made)))
		abort();
	return made;
}

cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
	cudnnBackendAttributeType_t type, int64_t n, const void *of)
{
	cudnnStatus_t (*set)(cudnnBackendDescriptor_t, cudnnBackendAttributeName_t, cudnnBackendAttributeType_t,
		int64_t, const void *) = real("cudnnBackendSetAttribute");
	cudnnBackendDescriptor_t p;
	cudnnStatus_t s;

	switch (name) {
	case CUDNN_ATTR_OPERATIONGRAPH_HANDLE: return CUDNN_STATUS_SUCCESS;
	case CUDNN_ATTR_EXECUTION_PLAN_HANDLE:
		p = h100();
		return set(d, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &p);
	case CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH:
		p = h100();
		s = set(d, name, type, n, of);
		return s ? s : set(d, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &p);
	default: return set(d, name, type, n, of);
	}
}

cudnnStatus_t cudnnBackendExecute(cudnnHandle_t h, cudnnBackendDescriptor_t plan, cudnnBackendDescriptor_t pack)
{
	(void)h, (void)plan, (void)pack;
	return CUDNN_STATUS_SUCCESS;
}

#define ALGORITHM(NAME, PERF, A, B, C, D) \
	cudnnStatus_t NAME( \
		cudnnHandle_t h, const A a, const B b, const C c, const D d, const int asked, int *n, PERF *found) \
	{ \
		(void)h, (void)a, (void)b, (void)c, (void)d, (void)asked; \
		memset(found, 0, sizeof *found); \
		found->determinism = CUDNN_DETERMINISTIC; \
		*n = 1; \
		return CUDNN_STATUS_SUCCESS; \
	}
ALGORITHM(cudnnGetConvolutionForwardAlgorithm_v7, cudnnConvolutionFwdAlgoPerf_t, cudnnTensorDescriptor_t,
	cudnnFilterDescriptor_t, cudnnConvolutionDescriptor_t, cudnnTensorDescriptor_t)
ALGORITHM(cudnnGetConvolutionBackwardDataAlgorithm_v7, cudnnConvolutionBwdDataAlgoPerf_t, cudnnFilterDescriptor_t,
	cudnnTensorDescriptor_t, cudnnConvolutionDescriptor_t, cudnnTensorDescriptor_t)
ALGORITHM(cudnnGetConvolutionBackwardFilterAlgorithm_v7, cudnnConvolutionBwdFilterAlgoPerf_t, cudnnTensorDescriptor_t,
	cudnnTensorDescriptor_t, cudnnConvolutionDescriptor_t, cudnnFilterDescriptor_t)

#define WORKSPACE(NAME, A, B, C, D, ALGO) \
	cudnnStatus_t NAME(cudnnHandle_t h, const A a, const B b, const C c, const D d, ALGO algo, size_t *bytes) \
	{ \
		(void)h, (void)a, (void)b, (void)c, (void)d, (void)algo; \
		*bytes = 1 << 20; \
		return CUDNN_STATUS_SUCCESS; \
	}
WORKSPACE(cudnnGetConvolutionForwardWorkspaceSize, cudnnTensorDescriptor_t, cudnnFilterDescriptor_t,
	cudnnConvolutionDescriptor_t, cudnnTensorDescriptor_t, cudnnConvolutionFwdAlgo_t)
WORKSPACE(cudnnGetConvolutionBackwardDataWorkspaceSize, cudnnFilterDescriptor_t, cudnnTensorDescriptor_t,
	cudnnConvolutionDescriptor_t, cudnnTensorDescriptor_t, cudnnConvolutionBwdDataAlgo_t)
WORKSPACE(cudnnGetConvolutionBackwardFilterWorkspaceSize, cudnnTensorDescriptor_t, cudnnTensorDescriptor_t,
	cudnnConvolutionDescriptor_t, cudnnFilterDescriptor_t, cudnnConvolutionBwdFilterAlgo_t)
