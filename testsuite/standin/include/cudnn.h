/* The part of cuDNN that emitted programs use, as standin.c has it: f32, f16, bf16, plain order; convolutions channels-last too. */
#ifndef STANDIN_CUDNN_H
#define STANDIN_CUDNN_H

#include "cuda_runtime_api.h"

typedef enum cudnnStatus {
	CUDNN_STATUS_SUCCESS = 0,
	CUDNN_STATUS_BAD_PARAM = 2000,
	CUDNN_STATUS_NOT_SUPPORTED = 3000,
	CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED = 4003,
	CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED = 4004
} cudnnStatus_t;
typedef enum cudnnDataType {
	CUDNN_DATA_FLOAT = 0,
	CUDNN_DATA_HALF = 2,
	CUDNN_DATA_INT32 = 4,
	CUDNN_DATA_BFLOAT16 = 9,
	CUDNN_DATA_BOOLEAN = 11
} cudnnDataType_t;
typedef enum cudnnTensorFormat { CUDNN_TENSOR_NCHW, CUDNN_TENSOR_NHWC } cudnnTensorFormat_t;
typedef enum cudnnConvolutionMode { CUDNN_CONVOLUTION, CUDNN_CROSS_CORRELATION } cudnnConvolutionMode_t;
typedef enum cudnnDeterminism { CUDNN_NON_DETERMINISTIC, CUDNN_DETERMINISTIC } cudnnDeterminism_t;
typedef enum cudnnMathType { CUDNN_DEFAULT_MATH, CUDNN_TENSOR_OP_MATH, CUDNN_FMA_MATH = 3 } cudnnMathType_t;
typedef enum cudnnNanPropagation { CUDNN_NOT_PROPAGATE_NAN, CUDNN_PROPAGATE_NAN } cudnnNanPropagation_t;
typedef enum cudnnActivationMode { CUDNN_ACTIVATION_RELU = 1, CUDNN_ACTIVATION_IDENTITY = 5 } cudnnActivationMode_t;
typedef enum cudnnPoolingMode {
	CUDNN_POOLING_MAX,
	CUDNN_POOLING_AVERAGE_COUNT_INCLUDE_PADDING,
	CUDNN_POOLING_AVERAGE_COUNT_EXCLUDE_PADDING,
	CUDNN_POOLING_MAX_DETERMINISTIC
} cudnnPoolingMode_t;
typedef enum cudnnBatchNormMode {
	CUDNN_BATCHNORM_PER_ACTIVATION,
	CUDNN_BATCHNORM_SPATIAL,
	CUDNN_BATCHNORM_SPATIAL_PERSISTENT
} cudnnBatchNormMode_t;
#define CUDNN_BN_MIN_EPSILON 0.0
enum { CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM = 1 };
typedef int cudnnConvolutionFwdAlgo_t, cudnnConvolutionBwdDataAlgo_t, cudnnConvolutionBwdFilterAlgo_t;
typedef struct cudnnContext *cudnnHandle_t;
typedef struct cudnnTensorStruct *cudnnTensorDescriptor_t;
typedef struct cudnnFilterStruct *cudnnFilterDescriptor_t;
typedef struct cudnnConvolutionStruct *cudnnConvolutionDescriptor_t;
typedef struct cudnnActivationStruct *cudnnActivationDescriptor_t;
typedef struct cudnnPoolingStruct *cudnnPoolingDescriptor_t;
typedef struct cudnnPerf {
	int algo;
	cudnnStatus_t status;
	float time;
	size_t memory;
	cudnnDeterminism_t determinism;
	cudnnMathType_t mathType;
	int reserved[3];
} cudnnConvolutionFwdAlgoPerf_t, cudnnConvolutionBwdDataAlgoPerf_t, cudnnConvolutionBwdFilterAlgoPerf_t;

const char *cudnnGetErrorString(cudnnStatus_t s);
void cudnnGetLastErrorString(char *message, size_t most);
cudnnStatus_t cudnnCreate(cudnnHandle_t *h);
cudnnStatus_t cudnnSetStream(cudnnHandle_t h, cudaStream_t s);
cudnnStatus_t cudnnCreateTensorDescriptor(cudnnTensorDescriptor_t *t);
cudnnStatus_t cudnnSetTensorNdDescriptor(
	cudnnTensorDescriptor_t t, cudnnDataType_t type, int rank, const int dim[], const int stride[]);
cudnnStatus_t cudnnGetTensorNdDescriptor(
	cudnnTensorDescriptor_t t, int asked, cudnnDataType_t *type, int *rank, int dim[], int stride[]);
cudnnStatus_t cudnnDestroyTensorDescriptor(cudnnTensorDescriptor_t t);
cudnnStatus_t cudnnCreateFilterDescriptor(cudnnFilterDescriptor_t *w);
cudnnStatus_t cudnnSetFilterNdDescriptor(
	cudnnFilterDescriptor_t w, cudnnDataType_t type, cudnnTensorFormat_t format, int rank, const int dim[]);
cudnnStatus_t cudnnCreateConvolutionDescriptor(cudnnConvolutionDescriptor_t *c);
cudnnStatus_t cudnnSetConvolutionNdDescriptor(cudnnConvolutionDescriptor_t c, int n, const int pad[],
	const int stride[], const int dilation[], cudnnConvolutionMode_t mode, cudnnDataType_t type);
cudnnStatus_t cudnnSetConvolutionMathType(cudnnConvolutionDescriptor_t c, cudnnMathType_t type);
cudnnStatus_t cudnnSetConvolutionGroupCount(cudnnConvolutionDescriptor_t c, int groups);
cudnnStatus_t cudnnGetConvolutionForwardAlgorithm_v7(cudnnHandle_t h, cudnnTensorDescriptor_t x,
	cudnnFilterDescriptor_t w, cudnnConvolutionDescriptor_t c, cudnnTensorDescriptor_t y, int asked, int *found,
	cudnnConvolutionFwdAlgoPerf_t *perf);
cudnnStatus_t cudnnGetConvolutionBackwardDataAlgorithm_v7(cudnnHandle_t h, cudnnFilterDescriptor_t w,
	cudnnTensorDescriptor_t dy, cudnnConvolutionDescriptor_t c, cudnnTensorDescriptor_t dx, int asked, int *found,
	cudnnConvolutionBwdDataAlgoPerf_t *perf);
cudnnStatus_t cudnnGetConvolutionBackwardFilterAlgorithm_v7(cudnnHandle_t h, cudnnTensorDescriptor_t x,
	cudnnTensorDescriptor_t dy, cudnnConvolutionDescriptor_t c, cudnnFilterDescriptor_t dw, int asked, int *found,
	cudnnConvolutionBwdFilterAlgoPerf_t *perf);
cudnnStatus_t cudnnGetConvolutionForwardWorkspaceSize(cudnnHandle_t h, cudnnTensorDescriptor_t x,
	cudnnFilterDescriptor_t w, cudnnConvolutionDescriptor_t c, cudnnTensorDescriptor_t y,
	cudnnConvolutionFwdAlgo_t algo, size_t *bytes);
cudnnStatus_t cudnnGetConvolutionBackwardDataWorkspaceSize(cudnnHandle_t h, cudnnFilterDescriptor_t w,
	cudnnTensorDescriptor_t dy, cudnnConvolutionDescriptor_t c, cudnnTensorDescriptor_t dx,
	cudnnConvolutionBwdDataAlgo_t algo, size_t *bytes);
cudnnStatus_t cudnnGetConvolutionBackwardFilterWorkspaceSize(cudnnHandle_t h, cudnnTensorDescriptor_t x,
	cudnnTensorDescriptor_t dy, cudnnConvolutionDescriptor_t c, cudnnFilterDescriptor_t dw,
	cudnnConvolutionBwdFilterAlgo_t algo, size_t *bytes);
cudnnStatus_t cudnnConvolutionForward(cudnnHandle_t h, const void *alpha, cudnnTensorDescriptor_t xd, const void *x,
	cudnnFilterDescriptor_t wd, const void *w, cudnnConvolutionDescriptor_t c, cudnnConvolutionFwdAlgo_t algo,
	void *workspace, size_t bytes, const void *beta, cudnnTensorDescriptor_t yd, void *y);
cudnnStatus_t cudnnConvolutionBiasActivationForward(cudnnHandle_t h, const void *alpha1, cudnnTensorDescriptor_t xd,
	const void *x, cudnnFilterDescriptor_t wd, const void *w, cudnnConvolutionDescriptor_t c,
	cudnnConvolutionFwdAlgo_t algo, void *workspace, size_t bytes, const void *alpha2, cudnnTensorDescriptor_t zd,
	const void *z, cudnnTensorDescriptor_t bd, const void *bias, cudnnActivationDescriptor_t act,
	cudnnTensorDescriptor_t yd, void *y);
cudnnStatus_t cudnnConvolutionBackwardData(cudnnHandle_t h, const void *alpha, cudnnFilterDescriptor_t wd,
	const void *w, cudnnTensorDescriptor_t dyd, const void *dy, cudnnConvolutionDescriptor_t c,
	cudnnConvolutionBwdDataAlgo_t algo, void *workspace, size_t bytes, const void *beta,
	cudnnTensorDescriptor_t dxd, void *dx);
cudnnStatus_t cudnnConvolutionBackwardFilter(cudnnHandle_t h, const void *alpha, cudnnTensorDescriptor_t xd,
	const void *x, cudnnTensorDescriptor_t dyd, const void *dy, cudnnConvolutionDescriptor_t c,
	cudnnConvolutionBwdFilterAlgo_t algo, void *workspace, size_t bytes, const void *beta,
	cudnnFilterDescriptor_t dwd, void *dw);
cudnnStatus_t cudnnConvolutionBackwardBias(cudnnHandle_t h, const void *alpha, cudnnTensorDescriptor_t dyd,
	const void *dy, const void *beta, cudnnTensorDescriptor_t dbd, void *db);
cudnnStatus_t cudnnAddTensor(cudnnHandle_t h, const void *alpha, cudnnTensorDescriptor_t bd, const void *b,
	const void *beta, cudnnTensorDescriptor_t yd, void *y);

cudnnStatus_t cudnnCreateActivationDescriptor(cudnnActivationDescriptor_t *a);
cudnnStatus_t cudnnSetActivationDescriptor(
	cudnnActivationDescriptor_t a, cudnnActivationMode_t mode, cudnnNanPropagation_t nan, double coef);
cudnnStatus_t cudnnActivationForward(cudnnHandle_t h, cudnnActivationDescriptor_t a, const void *alpha,
	cudnnTensorDescriptor_t xd, const void *x, const void *beta, cudnnTensorDescriptor_t yd, void *y);
cudnnStatus_t cudnnBatchNormalizationForwardTraining(cudnnHandle_t h, cudnnBatchNormMode_t mode, const void *alpha,
	const void *beta, cudnnTensorDescriptor_t xd, const void *x, cudnnTensorDescriptor_t yd, void *y,
	cudnnTensorDescriptor_t row, const void *scale, const void *bias, double factor, void *running_mean,
	void *running_var, double epsilon, void *mean, void *inverse);
cudnnStatus_t cudnnBatchNormalizationForwardInference(cudnnHandle_t h, cudnnBatchNormMode_t mode, const void *alpha,
	const void *beta, cudnnTensorDescriptor_t xd, const void *x, cudnnTensorDescriptor_t yd, void *y,
	cudnnTensorDescriptor_t row, const void *scale, const void *bias, const void *mean, const void *var,
	double epsilon);
cudnnStatus_t cudnnBatchNormalizationBackward(cudnnHandle_t h, cudnnBatchNormMode_t mode, const void *alpha_data,
	const void *beta_data, const void *alpha_param, const void *beta_param, cudnnTensorDescriptor_t xd,
	const void *x, cudnnTensorDescriptor_t dyd, const void *dy, cudnnTensorDescriptor_t dxd, void *dx,
	cudnnTensorDescriptor_t row, const void *scale, void *dscale, void *dbias, double epsilon, const void *mean,
	const void *inverse);
cudnnStatus_t cudnnCreatePoolingDescriptor(cudnnPoolingDescriptor_t *p);
cudnnStatus_t cudnnSetPoolingNdDescriptor(cudnnPoolingDescriptor_t p, cudnnPoolingMode_t mode,
	cudnnNanPropagation_t nan, int n, const int window[], const int pad[], const int stride[]);
cudnnStatus_t cudnnPoolingForward(cudnnHandle_t h, cudnnPoolingDescriptor_t p, const void *alpha,
	cudnnTensorDescriptor_t xd, const void *x, const void *beta, cudnnTensorDescriptor_t yd, void *y);
cudnnStatus_t cudnnPoolingBackward(cudnnHandle_t h, cudnnPoolingDescriptor_t p, const void *alpha,
	cudnnTensorDescriptor_t yd, const void *y, cudnnTensorDescriptor_t dyd, const void *dy,
	cudnnTensorDescriptor_t xd, const void *x, const void *beta, cudnnTensorDescriptor_t dxd, void *dx);

/* ---- recurrent layers ---- */

typedef enum cudnnRNNAlgo { CUDNN_RNN_ALGO_STANDARD } cudnnRNNAlgo_t;
typedef enum cudnnForwardMode { CUDNN_FWD_MODE_INFERENCE, CUDNN_FWD_MODE_TRAINING } cudnnForwardMode_t;
typedef enum cudnnRNNMode { CUDNN_RNN_RELU, CUDNN_RNN_TANH, CUDNN_LSTM, CUDNN_GRU } cudnnRNNMode_t;
typedef enum cudnnRNNBiasMode {
	CUDNN_RNN_NO_BIAS,
	CUDNN_RNN_SINGLE_INP_BIAS,
	CUDNN_RNN_DOUBLE_BIAS,
	CUDNN_RNN_SINGLE_REC_BIAS
} cudnnRNNBiasMode_t;
typedef enum cudnnDirectionMode { CUDNN_UNIDIRECTIONAL, CUDNN_BIDIRECTIONAL } cudnnDirectionMode_t;
typedef enum cudnnRNNInputMode { CUDNN_LINEAR_INPUT, CUDNN_SKIP_INPUT } cudnnRNNInputMode_t;
typedef enum cudnnRNNDataLayout {
	CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_UNPACKED,
	CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_PACKED,
	CUDNN_RNN_DATA_LAYOUT_BATCH_MAJOR_UNPACKED
} cudnnRNNDataLayout_t;
typedef enum cudnnWgradMode { CUDNN_WGRAD_MODE_ADD, CUDNN_WGRAD_MODE_SET } cudnnWgradMode_t;
#define CUDNN_RNN_PADDED_IO_DISABLED 0
typedef struct cudnnDropoutStruct *cudnnDropoutDescriptor_t;
typedef struct cudnnRNNStruct *cudnnRNNDescriptor_t;
typedef struct cudnnRNNDataStruct *cudnnRNNDataDescriptor_t;

cudnnStatus_t cudnnCreateDropoutDescriptor(cudnnDropoutDescriptor_t *d);
cudnnStatus_t cudnnSetDropoutDescriptor(
	cudnnDropoutDescriptor_t d, cudnnHandle_t h, float p, void *states, size_t bytes, unsigned long long seed);
cudnnStatus_t cudnnCreateRNNDescriptor(cudnnRNNDescriptor_t *r);
cudnnStatus_t cudnnSetRNNDescriptor_v8(cudnnRNNDescriptor_t r, cudnnRNNAlgo_t algo, cudnnRNNMode_t cell,
	cudnnRNNBiasMode_t bias, cudnnDirectionMode_t direction, cudnnRNNInputMode_t input, cudnnDataType_t type,
	cudnnDataType_t math, cudnnMathType_t how, int32_t inputs, int32_t hidden, int32_t projected, int32_t layers,
	cudnnDropoutDescriptor_t dropout, uint32_t flags);
cudnnStatus_t cudnnCreateRNNDataDescriptor(cudnnRNNDataDescriptor_t *s);
cudnnStatus_t cudnnSetRNNDataDescriptor(cudnnRNNDataDescriptor_t s, cudnnDataType_t type, cudnnRNNDataLayout_t layout,
	int steps, int batch, int width, const int lengths[], void *fill);
cudnnStatus_t cudnnGetRNNWeightSpaceSize(cudnnHandle_t h, cudnnRNNDescriptor_t r, size_t *bytes);
cudnnStatus_t cudnnGetRNNTempSpaceSizes(cudnnHandle_t h, cudnnRNNDescriptor_t r, cudnnForwardMode_t mode,
	cudnnRNNDataDescriptor_t x, size_t *work, size_t *reserve);
cudnnStatus_t cudnnGetRNNWeightParams(cudnnHandle_t h, cudnnRNNDescriptor_t r, int32_t layer, size_t bytes,
	const void *space, int32_t id, cudnnTensorDescriptor_t matrix, void **at, cudnnTensorDescriptor_t bias,
	void **bias_at);
cudnnStatus_t cudnnRNNForward(cudnnHandle_t h, cudnnRNNDescriptor_t r, cudnnForwardMode_t mode, const int32_t lengths[],
	cudnnRNNDataDescriptor_t xd, const void *x, cudnnRNNDataDescriptor_t yd, void *y, cudnnTensorDescriptor_t hd,
	const void *hx, void *hy, cudnnTensorDescriptor_t cd, const void *cx, void *cy, size_t weight_bytes,
	const void *weights, size_t work_bytes, void *work, size_t reserve_bytes, void *reserve);
cudnnStatus_t cudnnRNNBackwardData_v8(cudnnHandle_t h, cudnnRNNDescriptor_t r, const int32_t lengths[],
	cudnnRNNDataDescriptor_t yd, const void *y, const void *dy, cudnnRNNDataDescriptor_t xd, void *dx,
	cudnnTensorDescriptor_t hd, const void *hx, const void *dhy, void *dhx, cudnnTensorDescriptor_t cd,
	const void *cx, const void *dcy, void *dcx, size_t weight_bytes, const void *weights, size_t work_bytes,
	void *work, size_t reserve_bytes, void *reserve);
cudnnStatus_t cudnnRNNBackwardWeights_v8(cudnnHandle_t h, cudnnRNNDescriptor_t r, cudnnWgradMode_t add,
	const int32_t lengths[], cudnnRNNDataDescriptor_t xd, const void *x, cudnnTensorDescriptor_t hd, const void *hx,
	cudnnRNNDataDescriptor_t yd, const void *y, size_t weight_bytes, void *dweights, size_t work_bytes, void *work,
	size_t reserve_bytes, void *reserve);

/* ---- graphs of operations (standin_graph.c) ---- */

typedef void *cudnnBackendDescriptor_t;
typedef enum cudnnBackendDescriptorType {
	CUDNN_BACKEND_POINTWISE_DESCRIPTOR = 0,
	CUDNN_BACKEND_ENGINECFG_DESCRIPTOR = 3,
	CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR = 4,
	CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR = 5,
	CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR = 13,
	CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR = 15,
	CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR = 16,
	CUDNN_BACKEND_TENSOR_DESCRIPTOR = 17,
	CUDNN_BACKEND_MATMUL_DESCRIPTOR = 18,
	CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR = 19,
	CUDNN_BACKEND_REDUCTION_DESCRIPTOR = 21,
	CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR = 22,
	CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR = 31
} cudnnBackendDescriptorType_t;
typedef enum cudnnBackendAttributeName {
	CUDNN_ATTR_POINTWISE_MODE = 0,
	CUDNN_ATTR_POINTWISE_MATH_PREC = 1,
	CUDNN_ATTR_POINTWISE_AXIS = 9,
	CUDNN_ATTR_ENGINEHEUR_MODE = 200,
	CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH = 201,
	CUDNN_ATTR_ENGINEHEUR_RESULTS = 202,
	CUDNN_ATTR_EXECUTION_PLAN_HANDLE = 400,
	CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG = 401,
	CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE = 402,
	CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR = 750,
	CUDNN_ATTR_OPERATION_POINTWISE_XDESC = 751,
	CUDNN_ATTR_OPERATION_POINTWISE_BDESC = 752,
	CUDNN_ATTR_OPERATION_POINTWISE_YDESC = 753,
	CUDNN_ATTR_OPERATION_POINTWISE_TDESC = 758,
	CUDNN_ATTR_OPERATIONGRAPH_HANDLE = 800,
	CUDNN_ATTR_OPERATIONGRAPH_OPS = 801,
	CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT = 900,
	CUDNN_ATTR_TENSOR_DATA_TYPE = 901,
	CUDNN_ATTR_TENSOR_DIMENSIONS = 902,
	CUDNN_ATTR_TENSOR_STRIDES = 903,
	CUDNN_ATTR_TENSOR_UNIQUE_ID = 906,
	CUDNN_ATTR_TENSOR_IS_VIRTUAL = 907,
	CUDNN_ATTR_TENSOR_IS_BY_VALUE = 908,
	CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS = 1000,
	CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS = 1001,
	CUDNN_ATTR_VARIANT_PACK_WORKSPACE = 1003,
	CUDNN_ATTR_MATMUL_COMP_TYPE = 1500,
	CUDNN_ATTR_OPERATION_MATMUL_ADESC = 1520,
	CUDNN_ATTR_OPERATION_MATMUL_BDESC = 1521,
	CUDNN_ATTR_OPERATION_MATMUL_CDESC = 1522,
	CUDNN_ATTR_OPERATION_MATMUL_DESC = 1523,
	CUDNN_ATTR_REDUCTION_OPERATOR = 1600,
	CUDNN_ATTR_REDUCTION_COMP_TYPE = 1601,
	CUDNN_ATTR_OPERATION_REDUCTION_XDESC = 1610,
	CUDNN_ATTR_OPERATION_REDUCTION_YDESC = 1611,
	CUDNN_ATTR_OPERATION_REDUCTION_DESC = 1612,
	CUDNN_ATTR_OPERATION_RESHAPE_XDESC = 2200,
	CUDNN_ATTR_OPERATION_RESHAPE_YDESC = 2201
} cudnnBackendAttributeName_t;
typedef enum cudnnBackendAttributeType {
	CUDNN_TYPE_HANDLE = 0,
	CUDNN_TYPE_DATA_TYPE = 1,
	CUDNN_TYPE_BOOLEAN = 2,
	CUDNN_TYPE_INT64 = 3,
	CUDNN_TYPE_VOID_PTR = 6,
	CUDNN_TYPE_HEUR_MODE = 8,
	CUDNN_TYPE_POINTWISE_MODE = 14,
	CUDNN_TYPE_BACKEND_DESCRIPTOR = 15,
	CUDNN_TYPE_REDUCTION_OPERATOR_TYPE = 18
} cudnnBackendAttributeType_t;
typedef enum cudnnPointwiseMode {
	CUDNN_POINTWISE_ADD = 0,
	CUDNN_POINTWISE_MUL = 1,
	CUDNN_POINTWISE_DIV = 6,
	CUDNN_POINTWISE_SUB = 9,
	CUDNN_POINTWISE_EXP = 13,
	CUDNN_POINTWISE_LOG = 15,
	CUDNN_POINTWISE_IDENTITY = 21,
	CUDNN_POINTWISE_CMP_GE = 303,
	CUDNN_POINTWISE_GEN_INDEX = 501,
	CUDNN_POINTWISE_BINARY_SELECT = 601
} cudnnPointwiseMode_t;
typedef enum cudnnReduceTensorOp { CUDNN_REDUCE_TENSOR_ADD = 0, CUDNN_REDUCE_TENSOR_MAX = 3 } cudnnReduceTensorOp_t;
typedef enum cudnnBackendHeurMode {
	CUDNN_HEUR_MODE_B = 1,
	CUDNN_HEUR_MODE_FALLBACK = 2,
	CUDNN_HEUR_MODE_A = 3
} cudnnBackendHeurMode_t;

size_t cudnnGetVersion(void);
cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type, cudnnBackendDescriptor_t *d);
cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t d);
cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t d);
cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
	cudnnBackendAttributeType_t type, int64_t n, const void *from);
cudnnStatus_t cudnnBackendGetAttribute(cudnnBackendDescriptor_t const d, cudnnBackendAttributeName_t name,
	cudnnBackendAttributeType_t type, int64_t asked, int64_t *n, void *to);
cudnnStatus_t cudnnBackendExecute(cudnnHandle_t h, cudnnBackendDescriptor_t plan, cudnnBackendDescriptor_t pack);

#endif
