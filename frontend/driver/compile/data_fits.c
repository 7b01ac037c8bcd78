/* Do the files of samples fit the inputs that they are for: type, shape, and as many samples in each. The numbers of small
 * files are looked at too; those of larger ones the programs judge as they read them. */
#include "compile.h"
#include <inttypes.h>
#include <string.h>
#include "data_content.h"
#include "global_batch.h"
#include "ir/settings.h"
#include "runtime/data/files.h"

typedef struct Sample { /* of an input of the graph */
	int rank;
	int64_t dim[MAXRANK], elements;
	bool plain; /* the batch axis counts samples, one by one */
} Sample;

static Sample sample_of(const Value *v, int64_t micro)
{
	const Type *t = &v->type;
	Sample s = { .elements = type_numel(t), .plain = v->batch_axis >= 0 && t->dim[v->batch_axis] == micro };

	if (v->batch_axis >= 0)
		s.elements /= micro;
	for (int i = 0; i < t->rank; i++)
		if (i != v->batch_axis)
			s.dim[s.rank++] = t->dim[i];
	return s;
}

static const char *dims(Arena *a, int rank, const int64_t *dim)
{
	const char *s = "";

	for (int i = 0; i < rank; i++)
		s = arena_printf(a, "%s%s%lld", s, i ? "x" : "", (long long)dim[i]);
	return rank ? s : "1";
}

static int squeezed(int rank, const int64_t *dim, int64_t *to)
{
	int n = 0;

	for (int i = 0; i < rank; i++)
		if (dim[i] != 1)
			to[n++] = dim[i];
	return n;
}

/* The same elements in the same order: equal but for axes of one element, or one of them is flat. */
static bool same_order(const Sample *s, int rank, const int64_t *dim)
{
	int64_t x[MAXRANK], y[MAXRANK];
	const int n = squeezed(s->rank, s->dim, x), m = squeezed(rank, dim, y);

	return n <= 1 || m <= 1 || (n == m && !memcmp(x, y, (size_t)n * sizeof *x));
}

/* Channels last where the input has them first. */
static bool channels_last(const Sample *s, int rank, const int64_t *dim)
{
	return rank == s->rank && rank >= 2 && dim[rank - 1] == s->dim[0] &&
	       !memcmp(dim, s->dim + 1, (size_t)(rank - 1) * sizeof *dim);
}

static bool shape_fits(Compile *c, const DataInput *x, const file_array *f, const Sample *s)
{
	const int rank = f->rank - 1;
	const char *has = dims(c->a, rank, f->dim + 1), *wants = dims(c->a, s->rank, s->dim);

	if (rank == s->rank && !memcmp(f->dim + 1, s->dim, (size_t)rank * sizeof *s->dim))
		return true;
	if (same_order(s, rank, f->dim + 1)) {
		diag_note(c->d, FILELOC(x->path), "samples of %s are read as the %s that input '%s' takes", has, wants,
			x->input);
		return true;
	}
	if (channels_last(s, rank, f->dim + 1))
		return diag_error(c->d, FILELOC(x->path), 216,
			"samples of %s have channels last (NHWC), input '%s' takes %s (NCHW); convert them: numpy.save('%s.npy', "
			"numpy.ascontiguousarray(numpy.moveaxis(numpy.load('%s'), -1, 1)))",
			has, x->input, wants, x->input, x->path);
	return diag_error(c->d, FILELOC(x->path), 216, "samples are %s, input '%s' takes %s", has, x->input, wants);
}

static bool whole(pd_dtype t) { return t != PD_F32 && t != PD_F64; }

/* The samples of an open file; 0 after a diagnostic. */
static int64_t count(Compile *c, const DataInput *x, const Value *v, const file_array *f)
{
	const Sample s = sample_of(v, c->m->batch);
	int64_t total = 1;

	for (int i = 0; i < f->rank; i++)
		total *= f->dim[i];
	if (!total) {
		diag_error(c->d, FILELOC(x->path), 216, "the file of input '%s' has no samples: %s elements", x->input,
			dims(c->a, f->rank, f->dim));
		return 0;
	}
	if (!dtype_float(v->type.dtype) && !whole(f->dtype)) {
		diag_error(c->d, FILELOC(x->path), 216,
			"the file has real numbers (%s), input '%s' takes whole ones (%s)",
			dtype_name(dtype_from_onnx((int)f->dtype)), x->input, dtype_name(v->type.dtype));
		return 0;
	}
	if (x->kind == DATA_TOKENS || x->kind == DATA_TOKENS32) {
		if (total <= s.elements)
			diag_error(c->d, FILELOC(x->path), 216,
				"%lld tokens; input '%s' takes windows of %lld and one token behind them",
				(long long)total, x->input, (long long)s.elements);
		return (total - 1) / s.elements;
	}
	const bool shaped = s.plain && x->kind != DATA_RAW && f->rank > 0;

	if (shaped && f->rank == s.rank + 1 && total / f->dim[0] != s.elements)
		return shape_fits(c, x, f, &s), 0;
	if (total < s.elements || total % s.elements || (shaped && total / s.elements != f->dim[0])) {
		diag_error(c->d, FILELOC(x->path), 216,
			"%s elements are no whole number of samples: input '%s' takes %s = %lld elements per sample%s",
			dims(c->a, f->rank, f->dim), x->input, dims(c->a, s.rank, s.dim), (long long)s.elements,
			shaped ? ", and the file's first axis counts samples" : "");
		return 0;
	}
	return !shaped || shape_fits(c, x, f, &s) ? total / s.elements : 0;
}

static bool tests_for_nan(const Compile *c)
{
	for (int i = 0; i < c->m->nstage; i++)
		for (const Node *n = c->m->stage[i]->forward->first; n; n = n->next)
			if (n->op == OP_IsNaN)
				return true;
	return false;
}

union number {
	int64_t whole;
	double real;
};

/* As note_outside of runtime/data/input.c, and no number that is none, unless the model asks for these. */
static bool value_fits(Compile *c, const DataInput *x, const Value *v, const int64_t at[2], union number is)
{
	if (dtype_float(v->type.dtype)) {
		return is.real == is.real ||
		       diag_error(c->d, FILELOC(x->path), 216,
			       "sample %" PRId64 ", element %" PRId64 " is NaN; input '%s' takes numbers", at[0], at[1],
			       x->input);
	}
	const int64_t w = is.whole;

	return (w >= 0 && w < v->index_range) ||
	       ((v->is_label || v->masked) && w == v->ignore_index && w != INT64_MIN) ||
	       diag_error(c->d, FILELOC(x->path), 216,
		       "sample %" PRId64 ", element %" PRId64 " is %" PRId64 "; input '%s' takes 0 to %" PRId64, at[0],
		       at[1], w, x->input, v->index_range - 1);
}

/* Of labels: do samples have unlike numbers of those that do not count? Said where each microbatch is divided by its
 * own count. */
typedef struct Uncounted {
	const int64_t *value; /* of them; NULL: it does not matter */
	int64_t first, these; /* in sample 0; in the one that is looked at */
	bool said;
} Uncounted;

static void uncounted(Compile *c, const DataInput *x, Uncounted *u, int64_t w, const int64_t at[2], int64_t each)
{
	const int64_t batch = c->m->batch, step = batch_of_step(c);

	u->these += w == *u->value;
	if (at[1] < each - 1)
		return;
	if (at[0] && u->these != u->first && !u->said) {
		u->said = true;
		diag_warn(c->d, FILELOC(x->path), "batch-loss",
			"sample 0 has %" PRId64 " labels of %" PRId64 ", which do not count, sample %" PRId64
			" has %" PRId64 ": the loss is not of '%s' alone, so each microbatch of %" PRId64
			" is divided by its own count, and the mean of that is trained, which is not that of the %" PRId64
			" samples of a step; --micro-batch %" PRId64 " --plan 1 (or 1-1) has that",
			u->first, *u->value, at[0], u->these, x->input, batch, step, step);
	}
	u->first = at[0] ? u->first : u->these;
	u->these = 0;
}

/* The numbers of the n samples of a file of at most 64 MiB. */
static bool values_fit(Compile *c, const DataInput *x, const Value *v, const file_array *f, int64_t n)
{
	enum { BLOCK = 1024 };
	static union number block[BLOCK];
	const bool real = dtype_float(v->type.dtype);
	const bool parts = c->m->microbatches > 1 && c->m->batch < batch_of_step(c);
	const int64_t each = sample_of(v, c->m->batch).elements, all = n * each;
	Uncounted u = { parts && !real && c->uneven.arena ? map_get(&c->uneven, v->name) : NULL, 0, 0, false };

	if (f->size > (size_t)64 << 20 || (real ? whole(f->dtype) || tests_for_nan(c) : v->index_range < 1 && !u.value))
		return true;
	for (int64_t first = 0; first < all; first += BLOCK) {
		const int64_t count = all - first < BLOCK ? all - first : BLOCK;

		file_values(f, (size_t)first, (size_t)count, real ? PD_F64 : PD_I64, block);
		for (int64_t i = 0; i < count; i++) {
			const int64_t at[2] = { (first + i) / each, (first + i) % each };

			if ((real || v->index_range) && !value_fits(c, x, v, at, block[i]))
				return false;
			if (u.value)
				uncounted(c, x, &u, block[i].whole, at, each);
		}
	}
	return true;
}

static int64_t file_samples(Compile *c, const DataInput *x, const Value *v)
{
	const char *why;
	file_array f;

	if (!file_open(&f, x->path, setting_word(SET_OF_DataKind, (int)x->kind), (pd_dtype)dtype_onnx(v->type.dtype),
		    v->name, &why)) {
		diag_error(c->d, FILELOC(x->path), 212, "cannot read the data of input '%s': %s", x->input, why);
		return 0;
	}
	int64_t n = count(c, x, v, &f);

	if (n > 0 && v->type.dtype == DT_f32 && f.dtype == PD_F64 && x->kind != DATA_RAW)
		diag_note(c->d, FILELOC(x->path), "float64 is read as the float32 that input '%s' takes", x->input);
	if (n > 0 && !values_fit(c, x, v, &f, n))
		n = 0;
	file_close(&f);
	return n;
}

static bool known_kind(Compile *c, const DataInput *x)
{
	const char *what, *turn = "";

	data_content(c->a, x, x->kind, &what, &turn);
	if (what)
		return diag_error(c->d, FILELOC(x->path), 217,
			"the data of input '%s': this is %s, and pdcc reads .npy, IDX, safetensors, raw numbers and tokens; convert it:\n%s",
			x->input, what, turn);
	if (x->kind == DATA_UNSAID)
		return diag_error(c->d, FILELOC(x->path), 217,
			"the data of input '%s': the content has no marks of .npy, IDX or safetensors; say what it is: --data %s=%s:raw, :tokens "
			"or :tokens32",
			x->input, x->input, x->path);
	return true;
}

bool data_known(Compile *c)
{
	const Training *t = &c->o->t;
	bool ok = true;

	for (int i = 0; i < t->data.ninput; i++)
		ok &= t->data.input[i].kind != DATA_UNSAID || known_kind(c, &t->data.input[i]);
	for (int i = 0; i < t->data.eval.ndata; i++)
		ok &= t->data.eval.data[i].kind != DATA_UNSAID || known_kind(c, &t->data.eval.data[i]);
	return ok;
}

bool data_fits(Compile *c, const DataInput *x, const Value *v, DataCount *of)
{
	if (!known_kind(c, x))
		return false;
	const int64_t n = file_samples(c, x, v);

	if (n < 1 || v->batch_axis < 0)
		return n > 0;
	if (of->x && of->n != n)
		return diag_error(c->d, FILELOC(x->path), 216, "input '%s' has %lld samples, input '%s' has %lld (%s)",
			x->input, (long long)n, of->x->input, (long long)of->n, of->x->path);
	*of = (DataCount){ x, n };
	return true;
}

static void list_kinds(Compile *c, DataInput *data, int n, DataKind common)
{
	for (int i = 0; i < n; i++) {
		const char *what, *turn;

		if (data[i].kind == DATA_SYNTHETIC)
			continue;
		if (data[i].kind == DATA_UNSAID)
			data[i].kind = common == DATA_SYNTHETIC ? DATA_UNSAID : common;
		data[i].kind = data_content(c->a, &data[i], data[i].kind, &what, &turn);
	}
}

void data_kinds(Compile *c)
{
	Training *t = &c->o->t;

	list_kinds(c, t->data.input, t->data.ninput, t->data.kind);
	list_kinds(c, t->data.eval.data, t->data.eval.ndata,
		t->data.eval.kind != DATA_UNSAID ? t->data.eval.kind : t->data.kind);
}
