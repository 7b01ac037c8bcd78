/* LSTM, GRU and RNN of ONNX (opset 7 and on; layout from 14) in canonical form: per direction the input's product with all
 * biases that may be added to it is one Gemm over all steps, and one node of the op runs over the steps. Directions are
 * joined as ONNX lays them out. Initial states of zeros count as absent. */
#include <string.h>
#include "canon.h"

enum { IN_X, IN_W, IN_R, IN_B, IN_LENS, IN_H0, IN_C0, IN_P };
enum { MAXGATES = 4 };

typedef struct Rec {
	Import *im;
	const OnnxNode *n;
	OpKind op;
	int gates, dirs;
	bool reverse, batch_first, linear;
	int64_t steps, batch, input, hidden;
	const char *activation;
	Value *x, *lens;
} Rec;

static Value *opt(const Rec *r, size_t i) { return i < r->n->n_input ? onnx_in(r->im, r->n, i) : NULL; }

static Value *reshape(const Rec *r, Value *x, int rank, int64_t a, int64_t b, int64_t c, int64_t e)
{
	const int64_t dim[4] = { a, b, c, e };

	return canon_reshape_to(r->im, x, rank, dim, NULL);
}

/* What operand i has for direction d: its leading axis gone. */
static Value *of_direction(const Rec *r, size_t i, int d)
{
	Value *v = opt(r, i);

	if (!v)
		return NULL;
	v = canon_slice_axis(r->im, v, 0, d, d + 1, 1);
	return v->type.rank == 2 ? reshape(r, v, 1, v->type.dim[1], 0, 0, 0)
	                         : reshape(r, v, 2, v->type.dim[1], v->type.dim[2], 0, 0);
}

/* Zeros, at whatever batch they were exported. */
static bool is_zero(const Value *v)
{
	bool zero = v->kind == VAL_CONST && v->data && v->type.dtype == DT_f32;

	for (int64_t k = 0; zero && k < type_numel(&v->type); k++)
		zero = ((const float *)v->data)[k] == 0;
	return zero;
}

/* An initial state is [dirs, batch, hidden], with layout 1 [batch, dirs, hidden]. */
static Value *state(const Rec *r, size_t i, int d)
{
	Value *v = opt(r, i);

	if (!v || is_zero(v))
		return NULL;
	v = canon_slice_axis(r->im, v, r->batch_first, d, d + 1, 1);
	return reshape(r, v, 2, r->batch, r->hidden, 0, 0);
}

static bool want_shape(const Rec *r, size_t i, const char *name, int rank, int64_t a, int64_t b, int64_t c)
{
	const Value *v = opt(r, i);
	const Type want = type_make(r->x->type.dtype, rank, (int64_t[]){ a, b, c });

	if (!v || (v->type.dtype == want.dtype && shape_eq(&v->type, &want)) ||
		((i == IN_H0 || i == IN_C0) && is_zero(v)))
		return true;
	return diag_error(r->im->d, r->im->b.loc, 304,
		"%s is %s; for %lld hidden units, %d direction%s and X %s it must be %s", name,
		str_type(r->im->d->scratch, &v->type), (long long)r->hidden, r->dirs, r->dirs > 1 ? "s" : "",
		str_shape(r->im->d->scratch, &r->x->type), str_type(r->im->d->scratch, &want));
}

/* ---- attributes ---- */

static bool strings_are(Rec *r, const OnnxAttr *a)
{
	static const char *const def[] = { "Sigmoid", "Tanh", "Tanh" };
	const int per = r->op == OP_LSTM ? 3 : r->op == OP_GRU ? 2 : 1;

	if (a->n_strings != (size_t)(per * r->dirs))
		return diag_error(r->im->d, r->im->b.loc, 302, "activations has %zu entries, %d direction%s need%s %d",
			a->n_strings, r->dirs, r->dirs > 1 ? "s" : "", r->dirs > 1 ? "" : "s", per * r->dirs);
	for (size_t i = 0; i < a->n_strings; i++) {
		const char *s = arena_strn(r->im->a, (const char *)a->strings[i].data, a->strings[i].len);

		if (r->op == OP_RNN && i == 0)
			r->activation = s;
		if (r->op == OP_RNN ? strcmp(s, r->activation) || (strcmp(s, "Tanh") && strcmp(s, "Relu"))
				    : strcmp(s, def[(int)i % per]))
			return diag_error(r->im->d, r->im->b.loc, 302, "activation %s at place %zu; supported are %s",
				s, i,
				r->op == OP_LSTM  ? "Sigmoid, Tanh, Tanh"
				: r->op == OP_GRU ? "Sigmoid, Tanh"
						  : "Tanh or Relu, the same in both directions");
	}
	return true;
}

static bool attributes(Rec *r)
{
	Import *im = r->im;
	const char *dir = onnx_str(im->a, r->n, "direction", "forward");
	const OnnxAttr *act = onnx_attr(r->n, "activations");

	r->dirs = strcmp(dir, "bidirectional") == 0 ? 2 : 1;
	r->reverse = strcmp(dir, "reverse") == 0;
	if (r->dirs == 1 && !r->reverse && strcmp(dir, "forward"))
		return diag_error(
			im->d, im->b.loc, 302, "direction is '%s'; it may be forward, reverse or bidirectional", dir);
	r->batch_first = onnx_int(r->n, "layout", 0) != 0;
	r->linear = onnx_int(r->n, "linear_before_reset", 0) != 0;
	r->activation = "Tanh";
	if (onnx_attr(r->n, "clip"))
		return canon_refuse(im, "clip is not supported: gradients through it are not defined by ONNX");
	if (onnx_int(r->n, "input_forget", 0))
		return canon_refuse(im, "input_forget (coupled input and forget gates) is not supported");
	return !act || act->n_strings == 0 || strings_are(r, act);
}

static bool sizes(Rec *r)
{
	Import *im = r->im;
	Value *w = opt(r, IN_W), *rec = opt(r, IN_R);
	const Type *x = &r->x->type;

	if (x->rank != 3 || w->type.rank != 3 || rec->type.rank != 3 || !dtype_float(x->dtype))
		return diag_error(im->d, im->b.loc, 304,
			"X is %s, W is %s, R is %s: each must have three axes, and X floats",
			str_type(im->d->scratch, x), str_type(im->d->scratch, &w->type),
			str_type(im->d->scratch, &rec->type));
	r->steps = x->dim[r->batch_first];
	r->batch = x->dim[!r->batch_first];
	r->input = x->dim[2];
	r->hidden = rec->type.dim[2];
	const int64_t said = onnx_int(r->n, "hidden_size", r->hidden);
	if (said != r->hidden)
		return diag_error(im->d, im->b.loc, 304, "hidden_size is %lld, R is %s", (long long)said,
			str_shape(im->d->scratch, &rec->type));
	const int64_t gh = r->gates * r->hidden;
	const int64_t s0 = r->batch_first ? r->batch : r->dirs, s1 = r->batch_first ? r->dirs : r->batch;
	return want_shape(r, IN_W, "W", 3, r->dirs, gh, r->input) &&
	       want_shape(r, IN_R, "R", 3, r->dirs, gh, r->hidden) && want_shape(r, IN_B, "B", 2, r->dirs, 2 * gh, 0) &&
	       want_shape(r, IN_H0, "initial_h", 3, s0, s1, r->hidden) &&
	       want_shape(r, IN_C0, "initial_c", 3, s0, s1, r->hidden) &&
	       want_shape(r, IN_P, "P", 2, r->dirs, 3 * r->hidden, 0);
}

/* ---- one direction ---- */

static Value *part(const Rec *r, Value *vector, int64_t from, int64_t to)
{
	return canon_slice_axis(r->im, vector, 0, from, to, 1);
}

/* The biases that go into the input's product; *rb is the one that does not (GRU with linear_before_reset). */
static Value *bias(const Rec *r, int d, Value **rb)
{
	Value *b = of_direction(r, IN_B, d);
	const int64_t h = r->hidden, gh = r->gates * h;

	*rb = NULL;
	if (!b)
		return NULL;
	Value *w = part(r, b, 0, gh), *rest = part(r, b, gh, 2 * gh);
	if (r->op != OP_GRU || !r->linear)
		return canon_binary(r->im, OP_Add, w, rest);
	*rb = part(r, rest, 2 * h, gh);
	Value *zr = canon_binary(r->im, OP_Add, part(r, w, 0, 2 * h), part(r, rest, 0, 2 * h));
	return canon_join(r->im, zr, part(r, w, 2 * h, gh), 0, NULL);
}

/* Outputs y, h and, for an LSTM, c of direction d. */
static void direction(const Rec *r, int d, Value **out)
{
	Import *im = r->im;
	Value *rb, *in[6], *made[MAXIN] = { 0 };
	void *at = canon_attr_of(im, OP_Gemm), *rec = canon_attr_of(im, r->op);
	int nin = 0;

	canon_put_int(OP_Gemm, at, "transB", 1);
	Value *product[3] = { reshape(r, r->x, 2, r->steps * r->batch, r->input, 0, 0), of_direction(r, IN_W, d),
		bias(r, d, &rb) };
	canon_emit(im, OP_Gemm, at, product[2] ? 3 : 2, product, NULL, made);
	in[nin++] = reshape(r, made[0], 3, r->steps, r->batch, r->gates * r->hidden, 0);
	in[nin++] = of_direction(r, IN_R, d);
	if (r->op == OP_GRU)
		in[nin++] = rb;
	in[nin++] = state(r, IN_H0, d);
	if (r->op == OP_LSTM) {
		in[nin++] = state(r, IN_C0, d);
		in[nin++] = of_direction(r, IN_P, d);
	}
	in[nin++] = r->lens;
	while (!in[nin - 1])
		nin--;
	canon_put_int(r->op, rec, "reverse", d == 1 || r->reverse);
	canon_put_int(r->op, rec, "linear_before_reset", r->op == OP_GRU && r->linear);
	canon_put_str(r->op, rec, "activation", r->activation);
	canon_emit(im, r->op, rec, nin, in, canon_out_name(r->n), made);
	for (int i = 0; i < 3; i++)
		out[i] = made[i];
}

/* Joins what the directions gave along a new axis. y: [T,B,H] -> [T,D,B,H]; states [B,H] -> [D,B,H]. */
static Value *join(const Rec *r, Value *const *of, bool sequence, const char *name)
{
	const int axis = sequence ? 1 : 0;
	Value *wide[2], *v;

	for (int d = 0; d < r->dirs; d++)
		wide[d] = sequence ? reshape(r, of[d], 4, r->steps, 1, r->batch, r->hidden)
		                   : reshape(r, of[d], 3, 1, r->batch, r->hidden, 0);
	v = r->dirs == 2 ? canon_join(r->im, wide[0], wide[1], axis, r->batch_first ? NULL : name) : wide[0];
	if (r->batch_first) {
		void *at = canon_attr_of(r->im, OP_Transpose);
		int64_t *perm = NEWN(r->im->a, int64_t, 4);

		if (!sequence)
			return canon_swap(r->im, v, 0, 1);
		perm[0] = 2;
		perm[2] = 1;
		perm[3] = 3;
		canon_put_ints(OP_Transpose, at, "perm", (Ints){ 4, perm });
		return canon_emit1(r->im, OP_Transpose, at, v, NULL, name);
	}
	return v;
}

bool canon_recurrent(Import *im, const OnnxNode *n)
{
	Rec r = { .im = im, .n = n, .op = op_find(n->op_type) };
	Value *out[2][3], *part[2];

	r.gates = r.op == OP_LSTM ? 4 : r.op == OP_GRU ? 3 : 1;
	if (!canon_need(im, n, 3))
		return false;
	r.x = onnx_in(im, n, IN_X);
	r.lens = opt(&r, IN_LENS);
	if (!attributes(&r) || !sizes(&r))
		return false;
	if (r.batch_first)
		r.x = canon_swap(im, r.x, 0, 1);
	for (int d = 0; d < r.dirs; d++)
		direction(&r, d, out[d]);
	if (im->b.failed)
		return false;
	for (size_t i = 0; i < n->n_output && i < (r.op == OP_LSTM ? 3 : 2); i++) {
		if (!*n->output[i])
			continue;
		for (int d = 0; d < r.dirs; d++)
			part[d] = out[d][i];
		onnx_bind(im, n, i, join(&r, part, i == 0, n->output[i]));
	}
	return !im->b.failed;
}
