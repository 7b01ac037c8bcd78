/* cpu_onednn3.c: what oneDNN 3 (Debian 13: 3.7) calls otherwise than 2: memory descriptors are the library's own objects, a
 * convolution is asked for in one call. */
#include "cpu.h"

#if DNNL_VERSION_MAJOR == 3

cpu_layout *cpu_layout_make(pd_dtype t, int n, const dnnl_dims_t dim, const dnnl_dims_t stride)
{
	cpu_layout *md;

	cpu_check(stride ? dnnl_memory_desc_create_with_strides(&md, n, dim, cpu_type(t), stride)
			 : dnnl_memory_desc_create_with_tag(&md, n, dim, cpu_type(t), dnnl_format_tag_any),
		"layout");
	return md;
}

void cpu_layout_drop(cpu_layout *md)
{
	if (md)
		dnnl_memory_desc_destroy(md);
}

dnnl_status_t cpu_conv_ask(dnnl_primitive_desc_t *pd, const cpu_convolution *c, const_dnnl_primitive_desc_t hint,
	const_dnnl_primitive_attr_t attr)
{
	const dnnl_alg_kind_t alg = dnnl_convolution_direct;

	if (c->what == PD_FORWARD)
		return dnnl_convolution_forward_primitive_desc_create(pd, cpu_engine(), dnnl_forward_training, alg,
			c->x, c->w, c->b, c->y, c->stride, c->dilation, c->lo, c->hi, attr);
	if (c->what == PD_BACKWARD_DATA)
		return dnnl_convolution_backward_data_primitive_desc_create(
			pd, cpu_engine(), alg, c->x, c->w, c->y, c->stride, c->dilation, c->lo, c->hi, hint, attr);
	return dnnl_convolution_backward_weights_primitive_desc_create(
		pd, cpu_engine(), alg, c->x, c->w, c->b, c->y, c->stride, c->dilation, c->lo, c->hi, hint, attr);
}

dnnl_status_t cpu_product_ask(dnnl_primitive_desc_t *pd, const cpu_layout *x, const cpu_layout *w, const cpu_layout *y,
	bool adds, dnnl_primitive_attr_t attr)
{
	dnnl_post_ops_t after = NULL;

	if (adds) {
		cpu_check(dnnl_post_ops_create(&after), "post-ops");
		cpu_check(dnnl_post_ops_append_sum(after, 1, 0, dnnl_data_type_undef), "post-ops");
		cpu_check(dnnl_primitive_attr_set_post_ops(attr, after), "post-ops");
		dnnl_post_ops_destroy(after);
	}
	return dnnl_matmul_primitive_desc_create(pd, cpu_engine(), x, w, NULL, y, attr);
}

bool cpu_multiplies_fp16(void)
{
	return (dnnl_get_effective_cpu_isa() & dnnl_cpu_isa_avx512_core_fp16) == dnnl_cpu_isa_avx512_core_fp16;
}

#endif
