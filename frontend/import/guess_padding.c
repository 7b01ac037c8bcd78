/* Rows of padding where nothing in a model says it (guess.h). Embedding(padding_idx=R) makes row R zeros and gives it no gradient; an ONNX
 * file has the zeros alone. */
#include <fnmatch.h>
#include <string.h>
#include "guess.h"

/* The one row of a table that is zeros; -1: there is none, or there are several. */
static int64_t zero_row(const Type *t, const void *data)
{
	const int64_t rows = t->dim[0];
	const size_t row = rows ? (size_t)type_bytes(t) / (size_t)rows : 0;
	int64_t found = -1;

	for (int64_t r = 0; r < rows && row; r++) {
		const char *p = (const char *)data + (size_t)r * row;

		if (*p || memcmp(p, p + 1, row - 1) != 0)
			continue;
		if (found >= 0)
			return -1;
		found = r;
	}
	return found;
}

static bool told(const ImportOpt *o, const char *name)
{
	for (int i = 0; i < o->npadding; i++)
		if (fnmatch(o->padding[i].name, name, 0) == 0)
			return true;
	return false;
}

/* How many lookups of a table there are, of which nothing says a row of padding; each gets it. */
static int look_up(const Value *table, int64_t row)
{
	int hits = 0;

	for (int k = 0; k < table->nuses; k++) {
		Node *n = table->uses[k].node;

		if (n->op != OP_Gather || table->uses[k].index || attr_int(n, "axis") || attr_int(n, "padding") >= 0)
			continue;
		if (row >= 0)
			attr_set_int(n, "padding", row);
		hits++;
	}
	return hits;
}

void guess_padding(Module *m, const ImportOpt *o, const char *path, Diag *d)
{
	const char *all = "", *first = NULL;

	for (int i = 0; i < m->nparam; i++) {
		const Value *v = m->param[i];
		const Param *p = v->param;

		if (p->kind != PARAM_WEIGHT || !p->data || v->type.rank != 2 || told(o, p->onnx_name) ||
			!look_up(v, -1))
			continue;
		const int64_t row = zero_row(&v->type, p->data);
		if (row < 0)
			continue;
		look_up(v, row);
		first = first ? first : p->onnx_name;
		all = arena_printf(
			m->arena, "%s%srow %lld of '%s'", all, *all ? ", " : "", (long long)row, p->onnx_name);
	}
	if (first)
		diag_note(d, FILELOC(path),
			"taken as padding, which gets no gradient (a lone row of zeros): %s; padding_idx: {%s: none} in train.yaml "
			"overrules it",
			all, first);
}
