/* Loop nests: the iteration space of elementwise and data-moving kernels, made as small as strides allow. */
#include <string.h>
#include "common.h"

void nest_begin(Nest *s, Arena *a, int rank, const int64_t *dim)
{
	*s = (Nest){ .rank = rank, .arena = a };
	for (int i = 0; i < rank; i++)
		s->dim[i] = dim[i];
}

NestOp *nest_add(Nest *s, const char *var, int64_t offset, const int64_t *stride)
{
	NestOp *o = &PUSH(s->arena, s->op, s->nop, s->capop);

	o->var = var;
	o->offset = offset;
	memset(o->stride, 0, sizeof o->stride);
	for (int i = 0; stride && i < s->rank; i++)
		o->stride[i] = stride[i];
	return o;
}

NestOp *nest_add_type(Nest *s, const char *var, const Type *t)
{
	int64_t stride[MAXRANK];
	NestOp *o = nest_add(s, var, 0, NULL);
	const int lead = s->rank - t->rank;

	type_strides(t, stride);
	for (int i = 0; i < t->rank; i++)
		if (t->dim[i] != 1)
			o->stride[lead + i] = stride[i];
	return o;
}

static void nest_move_dim(Nest *s, int to, int from)
{
	s->dim[to] = s->dim[from];
	for (int k = 0; k < s->nop; k++)
		s->op[k].stride[to] = s->op[k].stride[from];
}

static void nest_swap(Nest *s, int i, int j)
{
	const int64_t d = s->dim[i];

	s->dim[i] = s->dim[j];
	s->dim[j] = d;
	for (int k = 0; k < s->nop; k++) {
		const int64_t t = s->op[k].stride[i];
		s->op[k].stride[i] = s->op[k].stride[j];
		s->op[k].stride[j] = t;
	}
}

/* Loops i and i + 1 walk every operand as one loop would. */
static bool joins(const Nest *s, int i)
{
	for (int k = 0; k < s->nop; k++)
		if (s->op[k].stride[i] != s->op[k].stride[i + 1] * s->dim[i + 1])
			return false;
	return true;
}

void nest_finish(Nest *s)
{
	int n = 0;

	for (int i = 0; i < s->rank; i++)
		if (s->dim[i] != 1)
			nest_move_dim(s, n++, i);
	s->rank = n;
	for (int i = 1; i < n; i++) /* insertion sort: stable, descending stride of what is written */
		for (int j = i; j > 0 && s->op[0].stride[j] > s->op[0].stride[j - 1]; j--)
			nest_swap(s, j, j - 1);
	for (int i = n - 2; i >= 0; i--) {
		if (!joins(s, i))
			continue;
		s->dim[i + 1] *= s->dim[i];
		for (int j = i; j + 1 < s->rank; j++)
			nest_move_dim(s, j, j + 1);
		s->rank--;
	}
}

bool nest_tiled(Nest *s)
{
	int d = s->rank - 2;

	while (d >= 0 && s->op[1].stride[d] != 1)
		d--;
	if (d < 0 || s->op[1].stride[s->rank - 1] == 1 || s->dim[d] < 16 || s->dim[s->rank - 1] < 16)
		return false;
	for (; d < s->rank - 2; d++)
		nest_swap(s, d, d + 1);
	return true;
}

const char *nest_ref(Arena *a, const Nest *s, int op)
{
	static const char loop[] = "ijklmnpq"; /* innermost first */
	const NestOp *o = &s->op[op];
	const char *e = "", *plus = "";

	if (o->offset) {
		e = arena_printf(a, "%lld", (long long)o->offset);
		plus = " + ";
	}
	for (int d = 0; d < s->rank; d++) {
		const int64_t st = o->stride[d];
		const char v = loop[s->rank - 1 - d];
		if (!st)
			continue;
		if (st == 1)
			e = arena_printf(a, "%s%s%c", e, plus, v);
		else if (st < 0)
			e = arena_printf(a, "%s - %c * %lld", e, v, (long long)-st);
		else
			e = arena_printf(a, "%s%s%c * %lld", e, plus, v, (long long)st);
		plus = " + ";
	}
	return arena_printf(a, "%s[%s]", o->var, *e ? e : "0");
}

const char *nest_index(Arena *a, const Nest *s, const char *flat, unsigned loops)
{
	static const char loop[] = "ijklmnpq";
	const char *text = "";
	int64_t below = 1, all = 1;

	for (int d = 0; d < s->rank; d++)
		all *= loops >> d & 1 ? s->dim[d] : 1;
	for (int d = s->rank - 1; d >= 0; d--) {
		if (!(loops >> d & 1))
			continue;
		const char *e = below == 1 ? flat : arena_printf(a, "%s / %lld", flat, (long long)below);
		if (below * s->dim[d] < all)
			e = arena_printf(a, "%s %% %lld", e, (long long)s->dim[d]);
		text = arena_printf(a, "%s%sconst IX %c = %s;", text, *text ? "\n\t" : "", loop[s->rank - 1 - d], e);
		below *= s->dim[d];
	}
	return text;
}

const char *nest_tag(Arena *a, const Nest *s, int op)
{
	const NestOp *o = &s->op[op];
	const char *mask = "", *list = "";
	int64_t expect = 1;
	bool full = o->offset == 0, regular = full;

	for (int d = s->rank - 1; d >= 0; d--) {
		full &= o->stride[d] == expect;
		regular &= o->stride[d] == expect || o->stride[d] == 0;
		if (o->stride[d])
			expect *= s->dim[d];
		mask = arena_printf(a, "%d%s", o->stride[d] != 0, mask);
		list = arena_printf(a, "_%s%lld%s", o->stride[d] < 0 ? "m" : "",
			(long long)(o->stride[d] < 0 ? -o->stride[d] : o->stride[d]), list);
	}
	if (full)
		return "";
	if (regular)
		return mask;
	return o->offset ? arena_printf(a, "s%s_at%lld", list + 1, (long long)o->offset)
	                 : arena_printf(a, "s%s", list + 1);
}

const char *nest_dims(Arena *a, const Nest *s)
{
	const char *e = s->rank ? "" : "1";

	for (int d = 0; d < s->rank; d++)
		e = arena_printf(a, "%s%s%lld", e, d ? "x" : "", (long long)s->dim[d]);
	return e;
}

void parallel_hole(Holes *h, bool simd, int loops)
{
	if (simd)
		hole_text(h, "PARALLEL", "parallel for simd");
	else if (loops > 1)
		hole_text(h, "PARALLEL", "parallel for collapse(%d)", loops);
	else
		hole_text(h, "PARALLEL", "parallel for");
}

void nest_holes(const Nest *s, Holes *h)
{
	int64_t numel = 1, reach = 1;

	for (int d = 0; d < s->rank; d++)
		numel *= s->dim[d];
	for (int k = 0; k < s->nop; k++) {
		int64_t r = 1 + s->op[k].offset;
		for (int d = 0; d < s->rank; d++)
			r += s->dim[d] * (s->op[k].stride[d] < 0 ? -s->op[k].stride[d] : s->op[k].stride[d]);
		reach = r > reach ? r : reach;
	}
	if (s->rank > NEST_LOOPS)
		bug("a nest of %d loops", s->rank);
	hole_int(h, "RANK", s->rank);
	for (int d = 0; d < NEST_LOOPS; d++)
		hole_int(h, (const char *[]){ "D0", "D1", "D2", "D3", "D4", "D5", "D6", "D7" }[d],
			d < s->rank ? s->dim[s->rank - 1 - d] : 1);
	hole_int(h, "PAR", s->rank > 0 && numel >= 32768);
	parallel_hole(h, s->rank == 1, s->rank - 1);
	hole_int(h, "TILE", 0);
	hole_text(h, "IX", "%s",
		reach < INT32_MAX - (1 << 16) ? "int" : "int64_t"); /* threads go beyond the last element */
	hole_int(h, "FILL", 0);
	hole_int(h, "NUMEL", numel);
	hole_int(h, "COUNT", numel);
	hole_int(h, "VECTORS", 0);
	hole_text(h, "INDEX", "%s", nest_index(h->arena, s, "e", ~0u));
	hole_text(h, "VALUE", "0");
}

void nest_copy(const Nest *s, void *y, const void *a, int size)
{
	int64_t at[NEST_DIMS] = { 0 }, py = s->op[0].offset, pa = s->op[1].offset;
	int d;

	for (d = 0; d < s->rank; d++)
		if (s->dim[d] == 0)
			return;
	do {
		memcpy((char *)y + py * size, (const char *)a + pa * size, (size_t)size);
		for (d = s->rank - 1; d >= 0; d--) {
			py += s->op[0].stride[d];
			pa += s->op[1].stride[d];
			if (++at[d] < s->dim[d])
				break;
			py -= s->op[0].stride[d] * s->dim[d];
			pa -= s->op[1].stride[d] * s->dim[d];
			at[d] = 0;
		}
	} while (d >= 0);
}
