/* A convolution as the library of CPUs is asked about it. */
#ifndef PDCC_PASSES_COMMON_CONV_H
#define PDCC_PASSES_COMMON_CONV_H

#include "ir/op.h"
#include "runtime/pd.h"

/* l: of kind LIB_CONV. */
static inline pd_conv_desc conv_of(const Lib *l)
{
	pd_conv_desc d = { .what = l->what,
		.nd = l->nd,
		.n = l->n,
		.c = l->c,
		.oc = l->oc,
		.groups = l->groups,
		.nhwc = l->nhwc,
		.bias = l->bias,
		.type = (pd_dtype)dtype_onnx(l->type) };

	for (int i = 0; i < l->nd; i++) {
		d.in[i] = l->in[i];
		d.out[i] = l->out[i];
		d.kernel[i] = l->kernel[i];
		d.stride[i] = l->stride[i];
		d.pad_begin[i] = l->pad_begin[i];
		d.pad_end[i] = l->pad_end[i];
		d.dilation[i] = l->dilation[i];
	}
	return d;
}

#endif
