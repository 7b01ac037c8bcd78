/* cpu.c: oneDNN behind the calls of pd.h: primitives without allocation while running, matrix
 * products. These files use nothing else of the runtime, so that pdcc can ask them for scratch
 * sizes. */
#include "cpu.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

/* Declared here: not every compiler that can build this file brings omp.h. oneDNN uses the same
 * OpenMP library. */
void omp_set_num_threads(int n);
void omp_set_dynamic(int on);

static dnnl_engine_t engine;
static _Thread_local dnnl_stream_t stream; /* threads of a batch of products run their own */

_Noreturn void cpu_fail(int status, const char *fmt, ...)
{
	va_list ap;

	fflush(stdout);
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fputc('\n', stderr);
	exit(status);
}

void cpu_check(dnnl_status_t s, const char *what)
{
	if (s != dnnl_success)
		cpu_fail(1, "R502: oneDNN: %s: status %d", what, (int)s);
}

void *cpu_alloc(size_t n)
{
	void *p = calloc(1, n);

	if (!p)
		cpu_fail(77, "R501: no memory for %zu bytes", n);
	return p;
}

dnnl_engine_t cpu_engine(void)
{
#pragma omp critical(cpu_engine)
	if (!engine)
		cpu_check(dnnl_engine_create(&engine, dnnl_cpu, 0), "engine");
	return engine;
}

dnnl_data_type_t cpu_type(pd_dtype t) { return t == PD_BF16 ? dnnl_bf16 : t == PD_F16 ? dnnl_f16 : dnnl_f32; }

/* oneDNN takes bf16 wherever there is AVX-512, and without the instructions is slower than in f32. */
bool cpu_multiplies(pd_dtype t)
{
	if (t == PD_BF16)
		return (dnnl_get_effective_cpu_isa() & dnnl_cpu_isa_avx512_core_bf16) == dnnl_cpu_isa_avx512_core_bf16;
	return t == PD_F16 && cpu_multiplies_fp16();
}

void pd_threads(int n)
{
	omp_set_dynamic(0);
	omp_set_num_threads(n > 0 ? n : 1);
}

const char *pd_device_name(void)
{
	static char line[256];
	FILE *f = fopen("/proc/cpuinfo", "r");
	const char *found = NULL;

	while (f && !found && fgets(line, sizeof line, f))
		if (!strncmp(line, "model name", 10) && strchr(line, ':')) {
			found = strchr(line, ':') + 1;
			found += strspn(found, " \t");
			line[strcspn(line, "\n")] = 0;
		}
	if (f)
		fclose(f);
	return found && *found ? found : "cpu";
}

void pd_check_scratch(const char *what, size_t asked, size_t planned)
{
	if (asked > planned)
		cpu_fail(78,
			"R503: %s needs %zu bytes of scratch on this machine, the plan has %zu; compile the model here, or for this "
			"processor and oneDNN",
			what, asked, planned);
}

/* ---- primitives ---- */

static dnnl_primitive_attr_t user_scratch(void)
{
	dnnl_primitive_attr_t a;

	cpu_check(dnnl_primitive_attr_create(&a), "attributes");
	cpu_check(dnnl_primitive_attr_set_scratchpad_mode(a, dnnl_scratchpad_mode_user), "scratchpad mode");
	return a;
}

bool cpu_ask(cpu_prim *p, const cpu_convolution *c, const_dnnl_primitive_desc_t hint)
{
	dnnl_primitive_attr_t a;

	memset(p, 0, sizeof *p);
	cpu_engine();
	a = user_scratch();
	const dnnl_status_t s = cpu_conv_ask(&p->pd, c, hint, a);

	dnnl_primitive_attr_destroy(a);
	return s == dnnl_success;
}

bool cpu_is_loops(const cpu_prim *p)
{
	const char *name = "";

	dnnl_primitive_desc_query(p->pd, dnnl_query_impl_info_str, 0, &name);
	return !strncmp(name, "ref", 3);
}

bool cpu_ask_product(cpu_prim *p, const cpu_layout *x, const cpu_layout *w, const cpu_layout *y, bool adds)
{
	dnnl_primitive_attr_t a;

	memset(p, 0, sizeof *p);
	a = user_scratch();
	dnnl_status_t s = cpu_product_ask(&p->pd, x, w, y, adds, a);

	dnnl_primitive_attr_destroy(a);
	if (s == dnnl_success && cpu_is_loops(p))
		cpu_drop(p);
	return p->pd != NULL;
}

bool cpu_ask_reorder(cpu_prim *p, const cpu_layout *from, const cpu_layout *to)
{
	dnnl_primitive_attr_t a;

	memset(p, 0, sizeof *p);
	cpu_engine();
	a = user_scratch();
	const dnnl_status_t s = dnnl_reorder_primitive_desc_create(&p->pd, from, engine, to, engine, a);

	dnnl_primitive_attr_destroy(a);
	return s == dnnl_success;
}

const cpu_layout *cpu_md(const cpu_prim *p, int arg)
{
	return dnnl_primitive_desc_query_md(p->pd, dnnl_query_exec_arg_md, arg);
}

size_t cpu_scratch(const cpu_prim *p)
{
	const cpu_layout *md = p->pd ? cpu_md(p, DNNL_ARG_SCRATCHPAD) : NULL;

	return md ? cpu_round(dnnl_memory_desc_get_size(md)) : 0;
}

static void add_arg(cpu_prim *p, int arg, const cpu_layout *md)
{
	dnnl_exec_arg_t *a = &p->arg[p->n++];

	a->arg = arg;
	cpu_check(dnnl_memory_create(&a->memory, md, engine, NULL), "memory");
}

void cpu_make(cpu_prim *p, const int *args)
{
	cpu_check(dnnl_primitive_create(&p->prim, p->pd), "primitive");
	for (; *args; args++)
		add_arg(p, *args, cpu_md(p, *args));
	add_arg(p, DNNL_ARG_SCRATCHPAD, cpu_md(p, DNNL_ARG_SCRATCHPAD));
}

void cpu_run(const cpu_prim *p, void *const *pointer)
{
	if (!stream)
		cpu_check(dnnl_stream_create(&stream, engine, dnnl_stream_default_flags), "stream");
	for (int i = 0; i < p->n; i++)
		dnnl_memory_set_data_handle(p->arg[i].memory, pointer[i]);
	cpu_check(dnnl_primitive_execute(p->prim, stream, p->n, p->arg), "execution");
}

void cpu_drop(cpu_prim *p)
{
	for (int i = 0; i < p->n; i++)
		dnnl_memory_destroy(p->arg[i].memory);
	if (p->prim)
		dnnl_primitive_destroy(p->prim);
	if (p->pd)
		dnnl_primitive_desc_destroy(p->pd);
	memset(p, 0, sizeof *p);
}

cpu_layout *cpu_activation(pd_dtype t, int n, int c, int nd, const int *sp, int nhwc)
{
	dnnl_dims_t dim = { n, c }, stride = { 0 };
	int64_t area = 1;

	for (int i = nd - 1; i >= 0; i--) {
		dim[2 + i] = sp[i];
		stride[2 + i] = nhwc ? area * c : area;
		area *= sp[i];
	}
	stride[1] = nhwc ? 1 : area;
	stride[0] = area * c;
	return cpu_layout_make(t, 2 + nd, dim, stride);
}

/* ---- matrix products ---- */

void pd_gemm(int transa, int transb, int m, int n, int k, const float *a, int lda, const float *b, int ldb, float beta,
	float *c, int ldc)
{
	cpu_check(dnnl_sgemm(transa ? 'T' : 'N', transb ? 'T' : 'N', m, n, k, 1.0f, a, lda, b, ldb, beta, c, ldc),
		"sgemm");
}

void pd_gemm_bias(int transa, int transb, int m, int n, int k, const float *a, int lda, const float *b, int ldb,
	const float *bias, float *c)
{
	for (int i = 0; i < m; i++)
		memcpy(c + (size_t)i * (size_t)n, bias, (size_t)n * sizeof *c);
	pd_gemm(transa, transb, m, n, k, a, lda, b, ldb, 1, c, n);
}

/* By squares of a cache line's width, so that what is read and what is written are whole lines. */
void pd_transpose(float *restrict to, const float *restrict from, int rows, int cols)
{
	enum { SIDE = 16 };

#pragma omp parallel for if ((int64_t)rows * cols >= 65536)
	for (int i = 0; i < cols; i += SIDE)
		for (int j = 0; j < rows; j += SIDE)
			for (int a = i; a < i + SIDE && a < cols; a++)
				for (int b = j; b < j + SIDE && b < rows; b++)
					to[(size_t)a * (size_t)rows + (size_t)b] =
						from[(size_t)b * (size_t)cols + (size_t)a];
}
