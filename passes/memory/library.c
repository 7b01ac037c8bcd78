/* library: how much scratch memory each library call of a stage will need. The library itself is asked (runtime/cpu*.c
 * are linked into pdcc), with the number of threads that the program will run with, since its answer depends on it.
 * Equal calls are asked once. Kernels of ours that work in such memory say themselves how much (LIB_ROOM). Reads OpDef.lib and the plan's devices; writes Node.scratch. */
#include <string.h>
#include "passes/common/conv.h"
#include "passes/common/plan.h"

typedef struct Answer {
	Lib lib;
	int threads;
	int64_t scratch;
} Answer;

typedef struct Asked {
	Arena *a;
	Answer *v;
	int n, cap;
} Asked;

static int threads_of(const Stage *s, const PassCx *cx)
{
	const int d = s->device[0];

	if (cx->train && cx->train->target.threads > 0)
		return cx->train->target.threads;
	return cx->cluster && d >= 0 && d < cx->cluster->ndevice && cx->cluster->device[d].cores > 0
	               ? cx->cluster->device[d].cores
	               : 1;
}

static size_t bn_scratch(const Lib *l)
{
	pd_bn_desc d = { .what = l->what, .n = l->n, .c = l->c, .nd = l->nd, .nhwc = l->nhwc, .eps = l->eps };

	for (int i = 0; i < l->nd; i++)
		d.sp[i] = l->in[i];
	return pd_bn_scratch(&d);
}

static bool ask(Asked *k, Node *n, int threads, PassCx *cx)
{
	Lib l;

	memset(&l, 0, sizeof l);
	optab[n->op]->lib(n, &l);
	if (l.kind == LIB_ROOM) {
		n->scratch = l.bytes;
		return true;
	}
	for (int i = 0; i < k->n; i++)
		if (k->v[i].threads == threads && !memcmp(&k->v[i].lib, &l, sizeof l)) {
			n->scratch = k->v[i].scratch;
			return true;
		}
	const pd_conv_desc conv = conv_of(&l);
	const size_t bytes = l.kind == LIB_CONV ? pd_conv_scratch(&conv) : bn_scratch(&l);
	if (bytes == SIZE_MAX)
		return diag_error(cx->d, n->loc, 602, "the library has no %s for %s", optab[n->op]->name,
			str_type(cx->scratch, &n->in[0]->type));
	n->scratch = (int64_t)bytes;
	PUSH(k->a, k->v, k->n, k->cap) = (Answer){ l, threads, n->scratch };
	return true;
}

/* GPUs: workspaces of cuDNN are not of the arena; those of cuBLASLt are as large as we say, and what is ours of recurrent layers is known. */
static void give(Node *n)
{
	Lib l;

	optab[n->op]->lib(n, &l);
	if (l.kind == LIB_PRODUCT || l.kind == LIB_RECURRENT)
		n->scratch = l.bytes;
}

static bool is_f64(const Node *n) { return n->in[0]->type.dtype == DT_f64; }

bool pass_library(Module *m, PassCx *cx)
{
	Asked k = { .a = cx->scratch };
	bool ok = true;

	for (int i = 0; i < m->nstage; i++) {
		Stage *s = m->stage[i];
		const int threads = threads_of(s, cx);
		Graph *g[4];
		const int ngraph = stage_graphs(s, g);
		pd_threads(threads);
		for (int j = 0; j < ngraph; j++)
			for (Node *n = g[j]->first; n; n = n->next)
				if (optab[n->op]->lib && target_cuda(cx->train))
					give(n);
				else if (optab[n->op]->lib && !is_f64(n))
					ok &= ask(&k, n, threads, cx);
	}
	return ok;
}
