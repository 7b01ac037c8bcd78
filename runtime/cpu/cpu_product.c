/* cpu_product.c: matrix products of 16-bit floats by oneDNN's primitives, where the processor multiplies such floats:
 * products are added in f32, the result is rounded once. A primitive is made at the first product of its shape, and kept
 * by the thread; what it works in is the thread's room. */
#include "cpu.h"
#include <stdlib.h>

int omp_in_parallel(void);
int omp_get_max_threads(void);

typedef struct shape {
	int in, out, transa, transb, m, n, k, lda, ldb, ldc, adds;
	int threads; /* primitives divide their work when they are made */
} shape;

typedef struct product {
	shape s;
	cpu_prim p; /* pd NULL: oneDNN has none */
	struct product *next;
} product;

enum { LISTS = 256 };

static _Thread_local product *kept[LISTS];

static cpu_layout *matrix(pd_dtype t, int rows, int cols, int ld, int transposed)
{
	const dnnl_dims_t dim = { rows, cols }, down = { ld, 1 }, along = { 1, ld };

	return cpu_layout_make(t, 2, dim, transposed ? along : down);
}

/* Its elements are all apart: version 3.7 takes them for neighbours. */
static bool scattered(const shape *s)
{
	return (s->lda > 1 && (s->transa ? s->m : s->k) == 1) || (s->ldb > 1 && (s->transb ? s->k : s->n) == 1) ||
	       (s->ldc > 1 && s->n == 1);
}

static product *made(const shape *s)
{
	product *p = cpu_alloc(sizeof *p);
	cpu_layout *x = matrix((pd_dtype)s->in, s->m, s->k, s->lda, s->transa),
		   *w = matrix((pd_dtype)s->in, s->k, s->n, s->ldb, s->transb),
		   *y = matrix((pd_dtype)s->out, s->m, s->n, s->ldc, 0);

	p->s = *s;
	cpu_engine();
	if (!scattered(s) && cpu_ask_product(&p->p, x, w, y, s->adds))
		cpu_make(&p->p, (const int[]){ DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST, 0 });
	cpu_layout_drop(x);
	cpu_layout_drop(w);
	cpu_layout_drop(y);
	return p;
}

static const product *product_of(const shape *s)
{
	const int *word = (const int *)s;
	uint32_t h = 0;

	for (size_t i = 0; i < sizeof *s / sizeof *word; i++)
		h = (h ^ (uint32_t)word[i]) * 0x9e3779b1u;
	product **list = &kept[h >> 24];

	for (product *p = *list; p; p = p->next)
		if (!memcmp(&p->s, s, sizeof *s))
			return p;
	product *p = made(s);

	p->next = *list;
	return *list = p;
}

static void *read_only(const void *p) { return (void *)(uintptr_t)p; }

bool cpu_product(int room, pd_dtype in, pd_dtype out, int transa, int transb, int m, int n, int k, const uint16_t *a,
	int lda, const uint16_t *b, int ldb, float beta, void *c, int ldc)
{
	if ((beta != 0 && beta != 1) || !cpu_multiplies(in))
		return false;
	const shape s = { (int)in, (int)out, transa != 0, transb != 0, m, n, k, lda, ldb, ldc, beta != 0,
		omp_in_parallel() ? 1 : omp_get_max_threads() };
	const product *p = product_of(&s);

	if (!p->p.prim)
		return false;
	cpu_run(&p->p,
		(void *[]){ read_only(a), read_only(b), c, pd_room_f32(room, cpu_scratch(&p->p) / sizeof(float)) });
	return true;
}
