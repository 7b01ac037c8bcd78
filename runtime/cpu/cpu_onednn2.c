/* cpu_onednn2.c: what oneDNN 2 (Debian 12: 2.6) calls otherwise than 3: memory descriptors are structs, a convolution is
 * described first and asked for by its description. */
#include "cpu.h"

#if DNNL_VERSION_MAJOR == 2

#include <stdlib.h>

cpu_layout *cpu_layout_make(pd_dtype t, int n, const dnnl_dims_t dim, const dnnl_dims_t stride)
{
	cpu_layout *md = cpu_alloc(sizeof *md);

	cpu_check(stride ? dnnl_memory_desc_init_by_strides(md, n, dim, cpu_type(t), stride)
			 : dnnl_memory_desc_init_by_tag(md, n, dim, cpu_type(t), dnnl_format_tag_any),
		"layout");
	return md;
}

void cpu_layout_drop(cpu_layout *md) { free(md); }

dnnl_status_t cpu_conv_ask(dnnl_primitive_desc_t *pd, const cpu_convolution *c, const_dnnl_primitive_desc_t hint,
	const_dnnl_primitive_attr_t attr)
{
	const dnnl_alg_kind_t alg = dnnl_convolution_direct;
	dnnl_convolution_desc_t op;
	dnnl_status_t s;

	if (c->what == PD_FORWARD)
		s = dnnl_dilated_convolution_forward_desc_init(
			&op, dnnl_forward_training, alg, c->x, c->w, c->b, c->y, c->stride, c->dilation, c->lo, c->hi);
	else if (c->what == PD_BACKWARD_DATA)
		s = dnnl_dilated_convolution_backward_data_desc_init(
			&op, alg, c->x, c->w, c->y, c->stride, c->dilation, c->lo, c->hi);
	else
		s = dnnl_dilated_convolution_backward_weights_desc_init(
			&op, alg, c->x, c->w, c->b, c->y, c->stride, c->dilation, c->lo, c->hi);
	return s == dnnl_success ? dnnl_primitive_desc_create(pd, &op, attr, cpu_engine(), hint) : s;
}

dnnl_status_t cpu_product_ask(dnnl_primitive_desc_t *pd, const cpu_layout *x, const cpu_layout *w, const cpu_layout *y,
	bool adds, dnnl_primitive_attr_t attr)
{
	dnnl_matmul_desc_t op;
	dnnl_post_ops_t after = NULL;
	dnnl_status_t s = dnnl_matmul_desc_init(&op, x, w, NULL, y);

	if (adds) {
		cpu_check(dnnl_post_ops_create(&after), "post-ops");
		cpu_check(dnnl_post_ops_append_sum(after, 1), "post-ops");
		cpu_check(dnnl_primitive_attr_set_post_ops(attr, after), "post-ops");
		dnnl_post_ops_destroy(after);
	}
	return s == dnnl_success ? dnnl_primitive_desc_create(pd, &op, attr, cpu_engine(), NULL) : s;
}

/* Version 2 has no fp16 on processors. */
bool cpu_multiplies_fp16(void) { return false; }

#endif
