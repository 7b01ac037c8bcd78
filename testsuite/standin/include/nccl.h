/* The part of NCCL's interface that emitted programs use, declared anew for the library that stands in for it
 * (standin_nccl.c). Numbers that programs may see are NCCL's. */
#ifndef STANDIN_NCCL_H
#define STANDIN_NCCL_H

#include <cuda_runtime_api.h>
#include <limits.h>

#if defined __cplusplus
extern "C" {
#endif

#define NCCL_VERSION_CODE 22809

typedef struct ncclComm *ncclComm_t;
typedef struct {
	char internal[128];
} ncclUniqueId;
typedef enum ncclResult {
	ncclSuccess = 0,
	ncclUnhandledCudaError = 1,
	ncclSystemError = 2,
	ncclInternalError = 3,
	ncclInvalidArgument = 4,
	ncclInvalidUsage = 5,
	ncclRemoteError = 6,
	ncclInProgress = 7
} ncclResult_t;
typedef enum ncclRedOp { ncclSum = 0, ncclProd = 1, ncclMax = 2, ncclMin = 3, ncclAvg = 4 } ncclRedOp_t;
typedef enum ncclDataType {
	ncclInt8 = 0,
	ncclUint8 = 1,
	ncclInt32 = 2,
	ncclUint32 = 3,
	ncclInt64 = 4,
	ncclUint64 = 5,
	ncclFloat16 = 6,
	ncclFloat32 = 7,
	ncclFloat64 = 8,
	ncclBfloat16 = 9
} ncclDataType_t;
typedef struct ncclConfig {
	size_t size;
	int blocking, minCTAs, maxCTAs;
} ncclConfig_t;
#define NCCL_CONFIG_INITIALIZER { sizeof(ncclConfig_t), INT_MIN, INT_MIN, INT_MIN }

ncclResult_t ncclGetUniqueId(ncclUniqueId *id);
ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int nranks, ncclUniqueId id, int rank, ncclConfig_t *config);
ncclResult_t ncclCommDestroy(ncclComm_t comm);
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *error);
const char *ncclGetErrorString(ncclResult_t r);
const char *ncclGetLastError(ncclComm_t comm);
ncclResult_t ncclGroupStart(void);
ncclResult_t ncclGroupEnd(void);
ncclResult_t ncclSend(const void *buf, size_t count, ncclDataType_t t, int peer, ncclComm_t comm, cudaStream_t s);
ncclResult_t ncclRecv(void *buf, size_t count, ncclDataType_t t, int peer, ncclComm_t comm, cudaStream_t s);
ncclResult_t ncclAllReduce(
	const void *from, void *to, size_t count, ncclDataType_t t, ncclRedOp_t op, ncclComm_t comm, cudaStream_t s);
ncclResult_t ncclReduce(const void *from, void *to, size_t count, ncclDataType_t t, ncclRedOp_t op, int root,
	ncclComm_t comm, cudaStream_t s);
ncclResult_t ncclReduceScatter(
	const void *from, void *to, size_t count, ncclDataType_t t, ncclRedOp_t op, ncclComm_t comm, cudaStream_t s);
ncclResult_t ncclAllGather(const void *from, void *to, size_t count, ncclDataType_t t, ncclComm_t comm, cudaStream_t s);
ncclResult_t ncclBroadcast(
	const void *from, void *to, size_t count, ncclDataType_t t, int root, ncclComm_t comm, cudaStream_t s);

#if defined __cplusplus
}
#endif

#endif
