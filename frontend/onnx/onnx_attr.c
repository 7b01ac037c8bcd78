/* Attributes of a node: their kinds and the values that no operator has, checked once before the node is read, and their values. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "onnx_file.h"

#define KIND(k) ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__##k

/* ---- kinds: an attribute's name says its kind; where operators differ, the row with the operator comes first ---- */

static const struct kind {
	int kind;
	const char *op, *names;
} kinds[] = {
	{ KIND(FLOAT), "Pad", " value " },
	{ KIND(TENSOR), NULL, " value " },
	{ KIND(INT), NULL,
		" align_corners allowzero axis batch_axis batch_dims blocksize broadcast ceil_mode count_include_pad "
		"detect_negative detect_positive dtype end exclusive fmod group hidden_size ignore_index input_forget inverse "
		"is_test k keepdims largest layout linear_before_reset new_axis noop_with_empty_axes num_groups num_outputs p "
		"periodic q_num_heads kv_num_heads reverse select_last_index sorted spatial start stash_type storage_order time_axis "
		"to training_mode transA transB upper value_int " },
	{ KIND(FLOAT), NULL,
		" alpha beta bias clip cubic_coeff_a epsilon extrapolation_value gamma high lambd low max mean min "
		"momentum ratio scale value_float " },
	{ KIND(STRING), NULL,
		" approximate auto_pad coordinate_transformation_mode direction equation mode nearest_mode "
		"padding_mode reduction value_string " },
	{ KIND(INTS), NULL,
		" axes dilations ends kernel_shape output_padding output_shape paddings pads perm shape split "
		"starts strides value_ints " },
	{ KIND(FLOATS), NULL, " activation_alpha activation_beta scales value_floats " },
	{ KIND(STRINGS), NULL, " activations value_strings " },
};

static const char *kind_name(int kind)
{
	static const char *const name[] = {
		[KIND(UNDEFINED)] = "of no kind",
		[KIND(FLOAT)] = "FLOAT",
		[KIND(INT)] = "INT",
		[KIND(STRING)] = "STRING",
		[KIND(TENSOR)] = "TENSOR",
		[KIND(GRAPH)] = "GRAPH",
		[KIND(SPARSE_TENSOR)] = "SPARSE_TENSOR",
		[KIND(TYPE_PROTO)] = "TYPE_PROTO",
		[KIND(FLOATS)] = "FLOATS",
		[KIND(INTS)] = "INTS",
		[KIND(STRINGS)] = "STRINGS",
		[KIND(TENSORS)] = "TENSORS",
		[KIND(GRAPHS)] = "GRAPHS",
		[KIND(SPARSE_TENSORS)] = "SPARSE_TENSORS",
		[KIND(TYPE_PROTOS)] = "TYPE_PROTOS",
	};

	return kind >= 0 && kind < (int)(sizeof name / sizeof *name) ? name[kind] : "of an unknown kind";
}

/* KIND(UNDEFINED): any. */
static int wanted(const OnnxNode *n, const char *name)
{
	char word[64];

	if (strlen(name) > sizeof word - 3 || strchr(name, ' '))
		return KIND(UNDEFINED);
	snprintf(word, sizeof word, " %s ", name);
	for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
		if ((!kinds[i].op || strcmp(kinds[i].op, n->op_type) == 0) && strstr(kinds[i].names, word))
			return kinds[i].kind;
	return KIND(UNDEFINED);
}

/* Old files may leave the kind out: then the field that is there says it. */
static int given(const OnnxAttr *x)
{
	return x->type        ? (int)x->type
	       : x->has_f     ? KIND(FLOAT)
	       : x->has_i     ? KIND(INT)
	       : x->has_s     ? KIND(STRING)
	       : x->t         ? KIND(TENSOR)
	       : x->n_floats  ? KIND(FLOATS)
	       : x->n_ints    ? KIND(INTS)
	       : x->n_strings ? KIND(STRINGS)
	                      : KIND(UNDEFINED);
}

/* ---- values that mean nothing: kernels have these numbers as text, and C has no text for a NaN; infinities elsewhere, of
 * Clip or Gemm, are computed with ---- */

static const struct {
	const char *op, *names;
} finite[] = {
	{ NULL, " epsilon momentum " },
	{ "LRN", " alpha beta bias " },
	{ "RandomNormal", " mean scale " },
	{ "RandomNormalLike", " mean scale " },
	{ "RandomUniform", " high low " },
	{ "RandomUniformLike", " high low " },
};

static bool named(const char *names, const char *name)
{
	char word[64];

	return snprintf(word, sizeof word, " %s ", name) < (int)sizeof word && strstr(names, word);
}

static bool check_value(const OnnxNode *n, const OnnxAttr *x, Loc loc, Diag *d)
{
	for (size_t i = 0; given(x) == KIND(FLOAT) && !isfinite(x->f) && i < sizeof finite / sizeof *finite; i++)
		if ((!finite[i].op || strcmp(finite[i].op, n->op_type) == 0) && named(finite[i].names, x->name))
			return diag_error(d, loc, 302, "attribute '%s' is %g, it must be finite", x->name,
				isnan(x->f) ? fabs((double)x->f) : (double)x->f);
	if (given(x) == KIND(INT) && (x->i < 0 || x->i > 1) && named(" layout training_mode ", x->name))
		return diag_error(d, loc, 302, "attribute '%s' is %lld, it must be 0 or 1", x->name, (long long)x->i);
	return true;
}

bool onnx_check_attributes(const OnnxNode *n, Loc loc, Diag *d)
{
	for (size_t i = 0; i < n->n_attribute; i++) {
		const OnnxAttr *x = n->attribute[i];
		const int want = x->name ? wanted(n, x->name) : KIND(UNDEFINED), is = given(x);
		const bool empty =
			is == KIND(UNDEFINED) && (want == KIND(INTS) || want == KIND(FLOATS) || want == KIND(STRINGS));

		if (want != KIND(UNDEFINED) && want != is && !empty && !(want == KIND(FLOAT) && is == KIND(INT)))
			return diag_error(d, loc, 305, "attribute '%s' is %s, it must be %s", x->name, kind_name(is),
				kind_name(want));
		if (x->name && !check_value(n, x, loc, d))
			return false;
	}
	return true;
}

/* ---- values ---- */

const OnnxAttr *onnx_attr(const OnnxNode *n, const char *name)
{
	for (size_t i = 0; i < n->n_attribute; i++)
		if (n->attribute[i]->name && strcmp(n->attribute[i]->name, name) == 0)
			return n->attribute[i];
	return NULL;
}

int64_t onnx_int(const OnnxNode *n, const char *name, int64_t def)
{
	const OnnxAttr *x = onnx_attr(n, name);

	return x ? x->i : def;
}

double onnx_float(const OnnxNode *n, const char *name, double def)
{
	const OnnxAttr *x = onnx_attr(n, name);

	return !x ? def : given(x) == KIND(INT) ? (double)x->i : (double)x->f;
}

const char *onnx_str(Arena *a, const OnnxNode *n, const char *name, const char *def)
{
	const OnnxAttr *x = onnx_attr(n, name);

	return x ? arena_strn(a, (const char *)x->s.data, x->s.len) : def;
}

bool onnx_ints(Arena *a, const OnnxNode *n, const char *name, Ints *out)
{
	const OnnxAttr *x = onnx_attr(n, name);

	*out = (Ints){ 0, NULL };
	if (!x)
		return false;
	*out = (Ints){ (int)(x->n_ints > 1 << 20 ? 1 << 20 : x->n_ints),
		arena_dup(a, x->ints, x->n_ints * sizeof(int64_t)) };
	return true;
}
