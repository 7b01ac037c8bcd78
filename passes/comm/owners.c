/* owners: the parameter server of a replicated stage of PipeDream (section 4, "distributed parameter server"), with --comm ps.
 * Every replica owns some of the stage's parameters: it is sent the gradients of those by all others, each as soon as their
 * backward has made it (wait-free backpropagation), adds them in the order of the replicas once all of a round are there,
 * updates, and sends the newest to all. Here only who owns what, as `owner` of the stage's AllReduce: by bytes of gradients, the
 * largest first to the replica that has least. As long as a replica has a tenth more or less than the mean, of gradients or of
 * parameters, the largest of those that are whole is cut: replica r owns its rows from r x part on (`part` of its update, as
 * with --zero), and their state alone; its `owner` is -1. Whole rows, where the last replica has nearly as many as the others.
 * Runtime: owned.c. */
#include <stdlib.h>
#include <string.h>
#include "comm.h"
#include "servers.h"
#include "ir/analysis.h"

typedef struct Owned {
	const Value *w;
	int64_t n, part;          /* elements; of each replica, 0: it is whole */
	int owner, number, times; /* its gradient is pushed in so many parts, each as large */
} Owned;

bool stage_servers(const Module *m, const Training *t)
{
	return t && t->comm.by == COMM_PS && m->schedule && m->schedule->async && m->schedule->robin;
}

/* The parameters whose gradients are summed, each once. */
static Owned *parameters(Arena *a, const Node *sum, int *n)
{
	Owned *o = NEWN(a, Owned, sum->nin);
	Map seen;

	map_init(&seen, a, false);
	*n = 0;
	for (int i = 0; i < sum->nin; i++) {
		const Value *w = gradient_of(sum->in[i]);
		Owned *known = map_get(&seen, w);
		if (!known) {
			known = &o[*n];
			*known = (Owned){ .w = w, .n = type_numel(&w->type), .number = (*n)++ };
			map_put(&seen, w, known);
		}
		known->times++;
	}
	return o;
}

static int largest_first(const void *x, const void *y)
{
	const Owned *a = x, *b = y;

	const int64_t x_n = a->n * a->times, y_n = b->n * b->times;

	return x_n != y_n ? (x_n < y_n) - (x_n > y_n) : a->number - b->number;
}

/* Elements of each replica. */
static int64_t part_by_rows(const Owned *o, int replicas)
{
	enum { LINE = 16, EVEN = 20 }; /* floats of a cache line; the last replica lacks at most one in so many */
	const int64_t rows = o->w->type.rank ? o->w->type.dim[0] : 1, part = (rows + replicas - 1) / replicas;

	if (EVEN * replicas * (rows - (replicas - 1) * part) >= (EVEN - 1) * rows)
		return part * (o->n / rows);
	return o->n >= EVEN * replicas * LINE ? part_of(o->n, replicas) : (o->n + replicas - 1) / replicas;
}

/* Of gradients and of parameters. */
typedef struct Load {
	int64_t pushed, held;
} Load;

static void add(Load *l, const Owned *o, int64_t n)
{
	l->pushed += n * o->times;
	l->held += n;
}

static bool near_mean(int64_t n, int64_t all, int replicas) { return 10 * llabs(replicas * n - all) <= all; }

/* Deals the whole ones, which stand in order; gives whether everyone has the mean, but for a tenth. */
static bool deal(Owned *o, int n, int replicas, Load *load)
{
	Load all = { 0, 0 };
	bool even = true;

	memset(load, 0, sizeof *load * (size_t)replicas);
	for (int i = 0; i < n; i++)
		for (int r = 0; r < replicas && o[i].part; r++)
			add(&load[r], &o[i], part_held(o[i].n, o[i].part, r));
	for (int i = 0; i < n; i++) {
		int to = 0;

		add(&all, &o[i], o[i].n);
		if (o[i].part)
			continue;
		for (int r = 1; r < replicas; r++)
			to = load[r].pushed < load[to].pushed ? r : to;
		add(&load[to], &o[i], o[i].n);
		o[i].owner = to;
	}
	for (int r = 0; r < replicas; r++)
		even &= near_mean(load[r].pushed, all.pushed, replicas) && near_mean(load[r].held, all.held, replicas);
	return even;
}

/* All updates of it are in this stage, and can be of parts. */
static bool can_be_cut(const Owned *o, const Stage *s)
{
	if (o->n < s->replicas)
		return false;
	for (int i = 0; i < o->w->nuses; i++) {
		const Node *n = o->w->uses[i].node;
		if (optab[n->op]->flags & OP_UPDATE &&
			(n->graph != s->update || n->op == OP_SquareSum || !op_attr(n->op, "part")))
			return false;
	}
	return true;
}

static void cut(const Owned *o, const Stage *s)
{
	for (int i = 0; i < o->w->nuses; i++) {
		Node *n = o->w->uses[i].node;
		if (!(optab[n->op]->flags & OP_UPDATE))
			continue;
		update_in_parts(n, o->part);
		n->time /= s->replicas;
	}
}

static bool can_be_owned(const Node *sum, PassCx *cx)
{
	if (strcmp(attr_str(sum, "codec"), "none"))
		return diag_error(cx->d, NOLOC, 430,
			"--comm ps: gradients go to the replica that owns them as they are; --compress %s packs "
			"those that go by AllReduce",
			attr_str(sum, "codec"));
	for (int i = 0; i < sum->nin; i++) {
		const Value *w = gradient_of(sum->in[i]);
		if (!w || sum->in[i]->type.dtype != DT_f32)
			return diag_error(cx->d, NOLOC, 430, "--comm ps: the gradient of '%s' is %s; servers add f32",
				w ? w->name : sum->in[i]->name, dtype_name(sum->in[i]->type.dtype));
	}
	return true;
}

bool choose_owners(Node *sum, const Stage *s, PassCx *cx)
{
	Load *load = NEWN(cx->scratch, Load, s->replicas);
	int64_t *owner = NEWN(cx->scratch, int64_t, sum->nin);
	int n;

	if (!can_be_owned(sum, cx))
		return false;
	Owned *o = parameters(cx->scratch, sum, &n);
	qsort(o, (size_t)n, sizeof *o, largest_first);
	for (int i = 0; i < n && !deal(o, n, s->replicas, load); i++)
		if (can_be_cut(&o[i], s))
			o[i].part = part_by_rows(&o[i], s->replicas);
	deal(o, n, s->replicas, load);
	for (int k = 0; k < n; k++) {
		for (int i = 0; i < sum->nin; i++) /* all parts of its gradient */
			if (gradient_of(sum->in[i]) == o[k].w)
				owner[i] = o[k].part ? -1 : o[k].owner;
		if (o[k].part)
			cut(&o[k], s);
	}
	attr_set_ints(sum, "owner", sum->nin, owner);
	return true;
}
