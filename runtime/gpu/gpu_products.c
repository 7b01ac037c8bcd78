/* gpu_products.c: products of matrices by cuBLASLt. It takes matrices by columns, so row-major y = op(a) op(b) is told as
 * y' = op(b)' op(a)', where a bias runs along the rows, as the library wants it. The algorithm is the first choice of its
 * heuristic, asked once per form before step 0, until gpu_timed.c takes another. Where it has none for an epilogue, or the first run of a
 * form is refused, the product is made bare and kernels of ours (gpu_ends.cu) do the rest. How the library packs the bits of a Relu is told
 * nowhere: it writes and reads all of them, or our kernels do.
 *
 * Its fast kernels of 16 bits want extents that are multiples of EACH, not only rows that begin at such multiples (its documentation,
 * 'Tensor Core usage'; GPT-2's 50257 words on an H100: 4.7 ms for each of three products, 130 TFLOP/s). A long extent that is none is
 * cut: the product of what is a multiple and the product of the rest, which is small, are two calls.
 *
 * Numbers of 8 bits (its documentation, 'Using FP8'): rows of both operands along k, extents that are multiples of 16, GPUs of sm_89 and
 * newer; a scale in device memory for each operand. Sums are f32 all the way (FAST_ACCUM is off). */
#include "gpu_rt.h"
#include <cublasLt.h>
#include <stdlib.h>

enum {
	VALUES = 64,
	WORKSPACE =
		256, /* values, and with them scratch, begin at multiples of so many bytes; the library's workspace */
	EACH = 8,    /* elements */
	LONG = 512,  /* extents that are worth a second call */
	F8_ARCH = 89 /* the first that multiplies numbers of 8 bits */
};

typedef struct product product;
struct product {
	product *next, *made; /* made: the one before it, of all that the library makes in one call */
	pd_product_desc d;
	cublasLtMatmulDesc_t how;
	cublasLtMatrixLayout_t a, b, y; /* as the library calls them: a is our b */
	cublasLtMatmulAlgo_t algorithm;
	size_t bytes; /* of workspace */
	bool apart;   /* what is not the product is done by kernels of ours */
	bool told;    /* that the library has it */
	bool ran;     /* in a step: bits of a Relu may be kept as the library has them */
	bool refused; /* the library's epilogue, when it was tried */
	bool taken;   /* the algorithm is not the heuristic's first */
	int uses;     /* in the program */
	bool cut;     /* is one of two parts: values begin at multiples of EACH elements alone */
	bool more;    /* is added to what y has */
	/* a product in two parts has nothing of its own; the rest, which begins so many bytes behind those of y, a and b, is done
	 * first, as what is the larger part of a sum over k is added to it and rounded once */
	product *most, *rest;
	size_t at[3];
};

static cublasLtHandle_t lt;
static product *forms, *last_made;
static bool own_bits; /* of Relus: our kernels' */

static void check(cublasStatus_t s, const char *what)
{
	if (s == CUBLAS_STATUS_SUCCESS || rt_capture_refused("cuBLASLt", what))
		return;
	if (s == CUBLAS_STATUS_ALLOC_FAILED)
		rt_gpu_lacks("cuBLASLt");
	rt_fail(RT_ERROR, "R523", "%s: cuBLASLt: %s: status %d", pd_device_name(), what, (int)s);
}

static cudaDataType type_of(pd_dtype t)
{
	switch (t) {
	case PD_BF16: return CUDA_R_16BF;
	case PD_F16: return CUDA_R_16F;
	case PD_F8E4M3: return CUDA_R_8F_E4M3;
	case PD_F8E5M2: return CUDA_R_8F_E5M2;
	default: return CUDA_R_32F;
	}
}

static bool eight(const pd_product_desc *d) { return d->in == PD_F8E4M3 || d->in == PD_F8E5M2; }

static cublasLtMatrixLayout_t layout(const pd_product_desc *d, pd_dtype t, int rows, int columns, int ld, int64_t step)
{
	cublasLtMatrixLayout_t l;
	const int32_t batch = d->batch;

	check(cublasLtMatrixLayoutCreate(&l, type_of(t), (uint64_t)rows, (uint64_t)columns, ld ? ld : rows), "layout");
	if (batch > 1) {
		check(cublasLtMatrixLayoutSetAttribute(l, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &batch, sizeof batch),
			"batch");
		check(cublasLtMatrixLayoutSetAttribute(
			      l, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &step, sizeof step),
			"batch");
	}
	return l;
}

static void set(const product *o, cublasLtMatmulDescAttributes_t what, const void *to, size_t bytes)
{
	check(cublasLtMatmulDescSetAttribute(o->how, what, to, bytes), "attribute of a product");
}

static cublasLtEpilogue_t epilogue(const pd_product_desc *d)
{
	if (d->sum)
		return d->sum == 1 ? CUBLASLT_EPILOGUE_BGRADB : CUBLASLT_EPILOGUE_BGRADA;
	switch (d->end) {
	case PD_RELU:
		return d->keep   ? (d->bias ? CUBLASLT_EPILOGUE_RELU_AUX_BIAS : CUBLASLT_EPILOGUE_RELU_AUX)
		       : d->bias ? CUBLASLT_EPILOGUE_RELU_BIAS
		                 : CUBLASLT_EPILOGUE_RELU;
	case PD_GELU:
		return d->keep   ? (d->bias ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS : CUBLASLT_EPILOGUE_GELU_AUX)
		       : d->bias ? CUBLASLT_EPILOGUE_GELU_BIAS
		                 : CUBLASLT_EPILOGUE_GELU;
	case PD_RELU_GRAD: return CUBLASLT_EPILOGUE_DRELU;
	case PD_GELU_GRAD: return CUBLASLT_EPILOGUE_DGELU;
	default: return d->bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
	}
}

static bool kept(const pd_product_desc *d) { return d->keep || d->end == PD_RELU_GRAD || d->end == PD_GELU_GRAD; }

static bool keeps_bits(const pd_product_desc *d) { return d->end == PD_RELU_GRAD || (d->keep && d->end == PD_RELU); }

/* Where bias, kept values and scales lie is told at each run; the heuristic reads their alignment off the pointers. */
static void describe(product *o, cublasLtEpilogue_t end)
{
	const pd_product_desc *d = &o->d;
	const int32_t ta = d->transb ? CUBLAS_OP_T : CUBLAS_OP_N, tb = d->transa ? CUBLAS_OP_T : CUBLAS_OP_N;
	const uint32_t epilogue = end;
	const bool bits = d->end == PD_RELU || d->end == PD_RELU_GRAD;
	const int64_t row = bits ? (d->n + 127) / 128 * 128 : d->n;
	const void *const aligned = (const void *)(uintptr_t)VALUES;

	check(cublasLtMatmulDescCreate(&o->how, CUBLAS_COMPUTE_32F, CUDA_R_32F), "cublasLtMatmulDescCreate");
	set(o, CUBLASLT_MATMUL_DESC_TRANSA, &ta, sizeof ta);
	set(o, CUBLASLT_MATMUL_DESC_TRANSB, &tb, sizeof tb);
	set(o, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue);
	if (eight(d)) {
		set(o, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, &aligned, sizeof aligned);
		set(o, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, &aligned, sizeof aligned);
	}
	if (end == CUBLASLT_EPILOGUE_DEFAULT)
		return;
	if (d->bias || d->sum)
		set(o, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &aligned, sizeof aligned);
	if (kept(d)) {
		set(o, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, &aligned, sizeof aligned);
		set(o, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &row, sizeof row);
	}
}

/* Bytes of workspace that an algorithm may have. */
static uint64_t room_of(const product *o)
{
	return o->d.scratch > WORKSPACE - VALUES ? o->d.scratch - (WORKSPACE - VALUES) : 0;
}

/* At most so many algorithms, best first by the heuristic; 0: the library has nothing of this form. */
static int ask(const product *o, cublasLtMatmulHeuristicResult_t *found, int most)
{
	static const cublasLtMatmulPreferenceAttributes_t aligned[] = { CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES,
		CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES,
		CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES };
	const uint64_t room = room_of(o);
	const uint32_t align = o->cut ? EACH * 2 : VALUES;
	cublasLtMatmulPreference_t want;
	int n = 0;

	check(cublasLtMatmulPreferenceCreate(&want), "preference");
	check(cublasLtMatmulPreferenceSetAttribute(want, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &room, sizeof room),
		"preference");
	for (size_t i = 0; i < sizeof aligned / sizeof *aligned; i++)
		check(cublasLtMatmulPreferenceSetAttribute(want, aligned[i], &align, sizeof align), "preference");
	const cublasStatus_t s =
		cublasLtMatmulAlgoGetHeuristic(lt, o->how, o->a, o->b, o->y, o->y, want, most, found, &n);

	check(cublasLtMatmulPreferenceDestroy(want), "preference");
	if (s != CUBLAS_STATUS_SUCCESS || n < 1 || found->state != CUBLAS_STATUS_SUCCESS) {
		rt_refusal_taken();
		return 0;
	}
	return n;
}

/* False: the library has nothing of this form. */
static bool choose(product *o)
{
	cublasLtMatmulHeuristicResult_t found;

	if (!ask(o, &found, 1))
		return false;
	o->taken = false;
	o->algorithm = found.algo;
	o->bytes = found.workspaceSize;
	return true;
}

static bool same(const pd_product_desc *a, const pd_product_desc *b)
{
	return a->in == b->in && a->in_b == b->in_b && a->out == b->out && a->transa == b->transa &&
	       a->transb == b->transb && a->m == b->m && a->n == b->n && a->k == b->k && a->batch == b->batch &&
	       a->astep == b->astep && a->bstep == b->bstep && a->lda == b->lda && a->ldb == b->ldb &&
	       a->ldy == b->ldy && a->end == b->end && a->keep == b->keep && a->bias == b->bias && a->sum == b->sum &&
	       a->scratch == b->scratch;
}

/* Bare, or with what the library does at its end: the algorithm is still the other way's. */
static void turn(product *o, bool apart)
{
	if (o->apart == apart)
		return;
	check(cublasLtMatmulDescDestroy(o->how), "cublasLtMatmulDescDestroy");
	describe(o, apart ? CUBLASLT_EPILOGUE_DEFAULT : epilogue(&o->d));
	o->apart = apart;
}

static void choose_bare(product *o)
{
	const pd_product_desc *d = &o->d;

	turn(o, true);
	o->refused = true;
	if (!choose(o))
		rt_fail(RT_ERROR, "R523", "%s: cuBLASLt has no algorithm for a product of %d x %d x %d",
			pd_device_name(), d->m, d->n, d->k);
	if (epilogue(d) != CUBLASLT_EPILOGUE_DEFAULT && rt_log >= RT_LOG_DEBUG)
		printf("debug: cuBLASLt has no epilogue %d for a product of %d x %d x %d: kernels of the runtime do it\n",
			(int)epilogue(d), d->m, d->n, d->k);
	own_bits |= keeps_bits(d);
	for (product *f = forms; f; f = f->next) {
		if (f->apart || !keeps_bits(&f->d) || !own_bits)
			continue;
		if (f->ran)
			rt_fail(RT_ERROR, "R523",
				"%s: cuBLASLt refuses epilogue %d of a Relu and did epilogue %d before",
				pd_device_name(), (int)epilogue(d), (int)epilogue(&f->d));
		choose_bare(f);
	}
}

enum { PARTS = 9 };

/* Elements of a matrix. */
static size_t matrix(int rows, int columns, int ld) { return (size_t)rows * (size_t)(ld ? ld : columns); }

/* Bytes of y, also, a, b, bias, from, scales of a and b, scratch of a run. */
static size_t workspace_parts(const product *o, size_t bytes[PARTS])
{
	const pd_product_desc *d = &o->d;
	const size_t in = d->in == PD_F32 ? 4 : eight(d) ? 1 : 2, more = d->batch > 1 ? (size_t)d->batch - 1 : 0;
	const size_t y = (more + 1) * matrix(d->m, d->n, d->ldy) * 4,
		     wide = (size_t)d->m * (size_t)((d->n + 127) / 128 * 16);
	const size_t also = (y > wide ? y : wide) + 4 * (size_t)(d->m + d->n);
	const size_t a = d->transa ? matrix(d->k, d->m, d->lda) : matrix(d->m, d->k, d->lda);
	const size_t b = d->transb ? matrix(d->n, d->k, d->ldb) : matrix(d->k, d->n, d->ldb);
	size_t all = 0;

	memcpy(bytes,
		(const size_t[PARTS]){ y, also, (more * (size_t)d->astep + a) * in, (more * (size_t)d->bstep + b) * in,
			4 * (size_t)d->n, also, 4, 4, d->scratch + WORKSPACE },
		PARTS * sizeof *bytes);
	for (int i = 0; i < PARTS; i++)
		all += rt_part_bytes(bytes[i]);
	return all;
}

static void run(product *o, void *y, void *also, const void *a, const void *b, const void *bias, const void *from,
	const float *const scale[2], void *scratch);

static void parts_at(const product *o, char *scrap, void *at[PARTS])
{
	size_t bytes[PARTS];

	workspace_parts(o, bytes);
	for (int i = 0; i < PARTS; i++)
		at[i] = rt_part(&scrap, bytes[i]);
}

static void run_once(void *of, char *scrap)
{
	void *at[PARTS];

	parts_at(of, scrap, at);
	run(of, at[0], at[1], at[2], at[3], at[4], at[5], (const float *[]){ at[6], at[7] }, at[8]);
}

static product *made(const pd_product_desc *d, bool cut, bool more)
{
	product *o = rt_alloc(sizeof *o);

	if (!lt)
		check(cublasLtCreate(&lt), "cublasLtCreate");
	if (eight(d) && rt_gpu_arch() < F8_ARCH)
		rt_fail(RT_USAGE, "R524",
			"%s is of architecture sm_%d, and products of --amp fp8 take sm_%d or newer; make the program with --amp bf16",
			pd_device_name(), rt_gpu_arch(), F8_ARCH);
	o->d = *d;
	o->cut = cut;
	o->more = more;
	o->a = layout(
		d, eight(d) ? d->in_b : d->in, d->transb ? d->k : d->n, d->transb ? d->n : d->k, d->ldb, d->bstep);
	o->b = layout(d, d->in, d->transa ? d->m : d->k, d->transa ? d->k : d->m, d->lda, d->astep);
	o->y = layout(d, d->out, d->n, d->m, d->ldy, (int64_t)d->m * d->n);
	describe(o, epilogue(d));
	if ((own_bits && keeps_bits(d)) || !choose(o))
		choose_bare(o);
	rt_first_run(run_once, o, workspace_parts(o, (size_t[PARTS]){ 0 }));
	o->made = last_made;
	return last_made = o;
}

static bool ragged(int extent) { return extent > LONG && extent % EACH != 0; }

/* The extent that keeps the library from its fast kernels although all rows begin where those want it: 'n', 'm', 'k', or 0. */
static char to_cut(const pd_product_desc *d)
{
	const int la = d->lda ? d->lda : d->transa ? d->m : d->k, lb = d->ldb ? d->ldb : d->transb ? d->k : d->n;
	const int ly = d->ldy ? d->ldy : d->n;

	if (d->in == PD_F32 || eight(d) || d->batch > 1 || d->end != PD_AS_IT_IS || d->keep || d->bias || d->sum ||
		la % EACH || lb % EACH || ly % EACH)
		return 0;
	if (ragged(d->n))
		return 'n';
	if (ragged(d->m) && d->transa)
		return 'm';
	return ragged(d->k) && (d->transb || !d->transa) ? 'k' : 0;
}

/* Both parts write, or add to, y; leading dimensions stay those of the whole. */
static product *in_parts(const pd_product_desc *whole, bool cut, bool more)
{
	const char along = to_cut(whole);

	if (!along)
		return made(whole, cut, more);
	product *o = rt_alloc(sizeof *o);
	pd_product_desc d = *whole;
	const size_t in = 2, out = d.out == PD_F32 ? 4 : 2;

	o->d = d;
	o->more = more;
	d.lda = d.lda ? d.lda : d.transa ? d.m : d.k;
	d.ldb = d.ldb ? d.ldb : d.transb ? d.k : d.n;
	d.ldy = d.ldy ? d.ldy : d.n;
	pd_product_desc rest = d;
	int *const extent = along == 'n' ? &d.n : along == 'm' ? &d.m : &d.k;
	int *const left = along == 'n' ? &rest.n : along == 'm' ? &rest.m : &rest.k;
	const size_t most = (size_t)(*extent / EACH * EACH), la = (size_t)d.lda, lb = (size_t)d.ldb;

	*left = *extent % EACH;
	*extent = (int)most;
	if (along == 'k') {
		o->at[1] = in * (d.transa ? most * la : most);
		o->at[2] = in * (d.transb ? most : most * lb);
	} else if (along == 'm') {
		o->at[0] = out * most * (size_t)d.ldy;
		o->at[1] = in * most;
	} else {
		o->at[0] = out * most;
		o->at[2] = in * (d.transb ? most * lb : most);
	}
	if (rt_log >= RT_LOG_DEBUG)
		printf("debug: a product of %d x %d x %d is cut at %zu of %c\n", whole->m, whole->n, whole->k, most,
			along);
	o->rest = in_parts(&rest, true, more);
	o->most = in_parts(&d, cut, more || along == 'k');
	return o;
}

static product *form(const pd_product_desc *d, bool more)
{
	product *o = forms;

	while (o && (!same(&o->d, d) || o->more != more))
		o = o->next;
	if (!o) {
		o = in_parts(d, false, more);
		o->next = forms;
		forms = o;
		if (d->sum) /* the library may refuse it yet */
			pd_room_open(pd_sum_rows_room(d->k, d->sum == 1 ? d->m : d->n));
	}
	o->uses++;
	return o;
}

void pd_product_init(pd_product *p, const pd_product_desc *d)
{
	if (rt_virtual)
		return;
	*p = (pd_product){ .impl = form(d, false), .adds = d->adds };
	if (d->adds)
		p->more = form(d, true);
}

static product *now(const pd_product *p) { return p->adds && *p->adds > 0 ? p->more : p->impl; }

static cublasStatus_t multiply(const product *o, void *y, const void *a, const void *b, const void *row,
	const void *aux, const float *const scale[2], void *scratch)
{
	const float one = 1, added = o->more;
	void *room = o->bytes ? (char *)scratch + (WORKSPACE - (uintptr_t)scratch % WORKSPACE) % WORKSPACE : NULL;

	if (!o->apart && (o->d.bias || o->d.sum)) /* the library refuses one that the epilogue does not have */
		set(o, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &row, sizeof row);
	if (!o->apart && kept(&o->d))
		set(o, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, &aux, sizeof aux);
	if (eight(&o->d)) {
		set(o, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, &scale[1], sizeof scale[1]);
		set(o, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, &scale[0], sizeof scale[0]);
	}
	return cublasLtMatmul(lt, o->how, &one, b, o->a, a, o->b, &added, y, o->y, y, o->y, &o->algorithm, room,
		o->bytes, pd_stream());
}

/* A form's first run was refused: another way. false: there is none. */
static bool otherwise(product *o)
{
	rt_refusal_taken();
	if (o->taken && choose(o))
		return true;
	if (o->apart)
		return false;
	choose_bare(o);
	return true;
}

/* What the library did not do. */
static void behind(
	const product *o, void *y, void *also, const void *a, const void *b, const void *bias, const void *from)
{
	if (o->apart && o->d.sum)
		pd_sum_rows(o->d.in, o->d.out, also, o->d.sum == 1 ? a : b, o->d.k, o->d.sum == 1 ? o->d.m : o->d.n);
	else if (o->apart && epilogue(&o->d) != CUBLASLT_EPILOGUE_DEFAULT)
		pd_end_of(&o->d, y, also, bias, from);
}

/* scale: of a and b, of 8 bits. */
static void run(product *o, void *y, void *also, const void *a, const void *b, const void *bias, const void *from,
	const float *const scale[2], void *scratch)
{
	const void *row = o->d.sum ? also : bias, *aux = o->d.keep ? also : from;

	if (o->most) {
		run(o->rest, (char *)y + o->at[0], NULL, (const char *)a + o->at[1], (const char *)b + o->at[2], NULL,
			NULL, NULL, scratch);
		run(o->most, y, NULL, a, b, NULL, NULL, NULL, scratch);
		return;
	}
	cublasStatus_t s = multiply(o, y, a, b, row, aux, scale, scratch);

	while (!o->ran && (s == CUBLAS_STATUS_NOT_SUPPORTED || s == CUBLAS_STATUS_INVALID_VALUE) && otherwise(o))
		s = multiply(o, y, a, b, row, aux, scale, scratch);
	check(s, "cublasLtMatmul");
	if (!o->told && !o->apart && rt_log >= RT_LOG_DEBUG)
		printf("debug: cuBLASLt has epilogue %d for a product of %d x %d x %d\n", (int)epilogue(&o->d), o->d.m,
			o->d.n, o->d.k);
	o->told = true;
	o->ran |= !rt_first_running();
	behind(o, y, also, a, b, bias, from);
}

void pd_product_run(const pd_product *p, void *y, void *also, const void *a, const void *b, const void *bias,
	const void *from, void *scratch)
{
	run(now(p), y, also, a, b, bias, from, NULL, scratch);
}

void pd_product_run_f8(const pd_product *p, void *y, void *also, const void *a, const void *b, const void *bias,
	const void *from, const float *ascale, const float *bscale, void *scratch)
{
	run(now(p), y, also, a, b, bias, from, (const float *[]){ ascale, bscale }, scratch);
}

/* ---- for gpu_timed.c ---- */

product *rt_product_next(const product *o) { return o ? o->made : last_made; }

uint64_t rt_product_version(void) { return cublasLtGetVersion(); }

void rt_product_form(const product *o, char text[RT_FORM])
{
	static const char *const name[] = {
		[PD_F32] = "f32", [PD_F16] = "f16", [PD_BF16] = "bf16", [PD_F8E4M3] = "f8e4m3", [PD_F8E5M2] = "f8e5m2"
	};
	const pd_product_desc *d = &o->d;

	snprintf(text, RT_FORM, "%s%s%s-%s:%dx%dx%d:%c%c:x%d+%lld+%lld:rows%d,%d,%d:end%d%s%s:sum%d:room%zu%s%s",
		name[d->in], eight(d) ? "x" : "", eight(d) ? name[d->in_b] : "", name[d->out], d->m, d->n, d->k,
		d->transa ? 't' : 'n', d->transb ? 't' : 'n', d->batch, (long long)d->astep, (long long)d->bstep,
		d->lda, d->ldb, d->ldy, (int)d->end, d->keep ? "k" : "", d->bias ? "b" : "", d->sum, d->scratch,
		o->cut ? ":cut" : "", o->more ? ":more" : "");
}

pd_dtype rt_product_type(const product *o) { return o->d.in; }

int rt_product_bits(const product *o) { return keeps_bits(&o->d) ? o->uses : 0; }

size_t rt_product_scrap(const product *o) { return workspace_parts(o, (size_t[PARTS]){ 0 }); }

static rt_way way_of(const product *o, const cublasLtMatmulAlgo_t *algorithm)
{
	rt_way w = { .apart = o->apart };

	_Static_assert(sizeof w.algorithm == sizeof *algorithm, "an algorithm is so many bytes");
	memcpy(w.algorithm, algorithm, sizeof *algorithm);
	return w;
}

rt_way rt_product_now(const product *o) { return way_of(o, &o->algorithm); }

/* A way that is not there: an epilogue of which none is, or was refused, or of a Relu's bits that are our kernels'. */
static bool barred(const product *o, bool apart)
{
	return apart ? epilogue(&o->d) == CUBLASLT_EPILOGUE_DEFAULT && !o->apart
	             : o->refused || (own_bits && keeps_bits(&o->d));
}

int rt_product_ways(product *o, bool apart, rt_way *of, int most)
{
	cublasLtMatmulHeuristicResult_t *found = rt_alloc((size_t)most * sizeof *found);
	const bool before = o->apart;
	int n = 0;

	if (!barred(o, apart)) {
		turn(o, apart);
		for (int named = ask(o, found, most), i = 0; i < named; i++)
			if (found[i].state == CUBLAS_STATUS_SUCCESS)
				of[n++] = way_of(o, &found[i].algo);
		turn(o, before);
	}
	free(found);
	return n;
}

bool rt_product_try(product *o, const rt_way *w)
{
	const bool before = o->apart;
	cublasLtMatmulAlgo_t algorithm;
	cublasLtMatmulHeuristicResult_t r = { 0 };

	if (barred(o, w->apart))
		return false;
	memcpy(&algorithm, w->algorithm, sizeof algorithm);
	turn(o, w->apart);
	if (cublasLtMatmulAlgoCheck(lt, o->how, o->a, o->b, o->y, o->y, &algorithm, &r) != CUBLAS_STATUS_SUCCESS ||
		r.workspaceSize > room_of(o)) {
		rt_refusal_taken();
		turn(o, before);
		return false;
	}
	o->algorithm = algorithm;
	o->bytes = r.workspaceSize;
	o->taken = true;
	return true;
}

bool rt_product_once(product *o, char *scrap)
{
	void *at[PARTS];

	parts_at(o, scrap, at);
	if (multiply(o, at[0], at[2], at[3], o->d.sum ? at[1] : at[4], o->d.keep ? at[1] : at[5],
		    (const float *[]){ at[6], at[7] }, at[8]) != CUBLAS_STATUS_SUCCESS) {
		rt_refusal_taken();
		return false;
	}
	behind(o, at[0], at[1], at[2], at[3], at[4], at[5]);
	return true;
}

bool rt_product_take(product *o, const rt_way *w)
{
	const bool good = rt_product_try(o, w);

	if (!good && w->apart)
		choose_bare(o);
	own_bits |= o->apart && keeps_bits(&o->d);
	return good;
}
