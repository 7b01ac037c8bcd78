/* Parameters or constants of the model? (guess.h)
 *
 * An initializer is a constant where its readers or its values say so: it only enters Sin and Cos as frequencies do,
 * its values are a table of sines and cosines, a mask, a symmetric matrix; it normalises an input of the graph; it
 * weighs what the loss sums; an exporter made its name and no layer reads it as its weight; nothing that reads it
 * has a gradient. It is a parameter where a layer reads it as its weight or its name says that it is one. What is
 * left is trained if it has axes, and said (-Wparameters). */
#include <ctype.h>
#include <fnmatch.h>
#include <math.h>
#include <string.h>
#include "guess.h"

enum { READ_WEIGHT = 1, READ_TRIG = 2, READ_FLAT = 4, READ_INPUT = 8, READ_OTHER = 16 };

typedef struct Reader {
	const OnnxNode *node;
	size_t index;
	struct Reader *next;
} Reader;

struct Guesser {
	Arena *a;
	const OnnxGraph *g;
	const ImportOpt *o;
	bool torch;  /* made by PyTorch, whose initializers are parameters and buffers; constants are nodes */
	Map readers; /* value -> Reader */
	Map input;   /* inputs of the graph */
	Map told;    /* initializer -> Guess, those that are worth a word */
	Map seen;    /* values of the walk that is going on */
};

static bool any_word(const char *s, const char *const *list)
{
	for (; *list; list++)
		if (strcmp(s, *list) == 0)
			return true;
	return false;
}

static void read_by(Guesser *s, const char *name, const OnnxNode *n, size_t i)
{
	Reader *r = NEW(s->a, Reader);

	*r = (Reader){ n, i, map_get(&s->readers, name) };
	map_put(&s->readers, name, r);
}

Guesser *guess_new(Arena *a, const OnnxModel *p, const ImportOpt *o)
{
	Guesser *s = NEW(a, Guesser);

	*s = (Guesser){
		.a = a, .g = p->graph, .o = o, .torch = p->producer_name && strcmp(p->producer_name, "pytorch") == 0
	};
	map_init(&s->readers, a, true);
	map_init(&s->input, a, true);
	map_init(&s->told, a, true);
	for (size_t i = 0; i < s->g->n_node; i++)
		for (size_t k = 0; k < s->g->node[i]->n_input; k++)
			read_by(s, s->g->node[i]->input[k], s->g->node[i], k);
	for (size_t i = 0; i < s->g->n_input; i++)
		if (s->g->input[i]->name)
			map_put(&s->input, s->g->input[i]->name, s);
	return s;
}

/* ---- who reads it ---- */

/* A layer reads its operand i as a weight or bias. */
static bool reads_weight(const OnnxNode *n, size_t i)
{
	static const struct {
		const char *op;
		unsigned operands;
	} layers[] = {
		{ "MatMul", ~0u },
		{ "Gemm", ~0u },
		{ "Einsum", ~0u },
		{ "Gather", 1 },
		{ "Conv", 6 },
		{ "ConvTranspose", 6 },
		{ "PRelu", 2 },
		{ "LSTM", ~1u },
		{ "GRU", ~1u },
		{ "RNN", ~1u },
		{ "LayerNormalization", 6 },
		{ "RMSNormalization", 2 },
		{ "GroupNormalization", 6 },
		{ "InstanceNormalization", 6 },
		{ "BatchNormalization", 30 },
		{ "Attention", ~0u },
	};

	for (size_t k = 0; k < sizeof layers / sizeof *layers; k++)
		if (strcmp(n->op_type, layers[k].op) == 0)
			return layers[k].operands >> (i < 31 ? i : 31) & 1;
	return false;
}

static unsigned walk(Guesser *s, const char *name, bool through, int depth);

/* One reader; `through`: products and sums are followed too, to see where all of it ends. */
static unsigned reader_says(Guesser *s, const OnnxNode *n, size_t i, bool through, int depth)
{
	static const char *const moves[] = { "Identity", "Cast", "Reshape", "Transpose", "Unsqueeze", "Squeeze",
		"Expand", "Slice", "Concat", "Tile", "Flatten", "Split", NULL };
	static const char *const reckons[] = { "MatMul", "Mul", "Einsum", "Div", "Gather", NULL };
	static const char *const flat[] = { "Shape", "Size", "ConstantOfShape", "Greater", "Less", "GreaterOrEqual",
		"LessOrEqual", "Equal", "ArgMax", "ArgMin", "Not", "Range", "OneHot", "Resize", NULL };
	const bool trig = strcmp(n->op_type, "Cos") == 0 || strcmp(n->op_type, "Sin") == 0;

	if (trig || any_word(n->op_type, flat))
		return trig ? READ_TRIG : READ_FLAT;
	if (any_word(n->op_type, moves) || (through && any_word(n->op_type, reckons))) {
		unsigned all = 0;

		if (i && strcmp(n->op_type, "Concat") && !through)
			return READ_FLAT; /* a shape, axes */
		for (size_t k = 0; k < n->n_output; k++)
			all |= walk(s, n->output[k], through, depth + 1);
		return all;
	}
	if (reads_weight(n, i))
		return READ_WEIGHT;
	for (size_t k = 0; k < n->n_input && n->n_input == 2; k++)
		if (k != i && map_has(&s->input, n->input[k]))
			return READ_INPUT;
	return READ_OTHER;
}

static unsigned walk(Guesser *s, const char *name, bool through, int depth)
{
	unsigned all = 0;

	if (depth > 16 || map_has(&s->seen, name))
		return depth > 16 ? READ_OTHER : 0;
	map_put(&s->seen, name, s);
	for (const Reader *r = map_get(&s->readers, name); r; r = r->next)
		all |= reader_says(s, r->node, r->index, through, depth);
	return all;
}

static unsigned read_as(Guesser *s, const char *name, bool through)
{
	map_init(&s->seen, s->a, true);
	return walk(s, name, through, 0);
}

/* All of the elements, to one number. */
static bool sums_all(const OnnxNode *n)
{
	bool all = strcmp(n->op_type, "ReduceMean") == 0 || strcmp(n->op_type, "ReduceSum") == 0;

	for (size_t i = 0; i < n->n_attribute; i++)
		all &= strcmp(n->attribute[i]->name, "axes") != 0;
	return all && (n->n_input < 2 || !*n->input[1]);
}

/* The loss is a sum over something linear in it, elements by elements, as in the weights of a loss (pos_weight).
 * Trained, it would only make the loss small. */
static bool weighs_loss(Guesser *s, const char *name, int depth)
{
	static const char *const linear[] = { "Mul", "Add", "Sub", "Neg", "Cast", "Identity", "Unsqueeze", "Expand",
		"Reshape", NULL };
	const Reader *r = map_get(&s->readers, name);
	bool weighs = r != NULL && depth < 16;

	map_put(&s->seen, name, s);
	for (; r && weighs; r = r->next) {
		const OnnxNode *n = r->node;

		if (sums_all(n))
			continue;
		const bool two = n->n_input == 2, product = strcmp(n->op_type, "Mul") == 0;
		weighs = any_word(n->op_type, linear) && n->n_output == 1 &&
		         !(product && two && map_has(&s->seen, n->input[!r->index])) &&
		         weighs_loss(s, n->output[0], depth + 1);
	}
	return weighs;
}

/* ---- what its name says ---- */

static const char *last_part(const char *name)
{
	const char *dot = strrchr(name, '.'), *slash = strrchr(name, '/');

	return dot && dot > slash ? dot + 1 : slash ? slash + 1 : name;
}

/* Exporters name constants so that they lifted out of the program or folded. */
static bool name_is_made(const char *name)
{
	static const char *const marks[] = { "onnx::", "_tensor_constant", "lifted_tensor", "/Constant", "_constant_",
		NULL };

	for (int i = 0; marks[i]; i++)
		if (strstr(name, marks[i]))
			return true;
	return false;
}

static bool name_is_weight(const char *name)
{
	static const char *const words[] = { "weight", "bias", "kernel", "gamma", "beta", "embed", "token", "alpha",
		"param", "proj", "query", "scale", "filter", "matrix", "slope", "theta", NULL };
	const char *last = last_part(name);
	char low[64] = "";

	for (size_t i = 0; i + 1 < sizeof low && last[i]; i++)
		low[i] = (char)tolower((unsigned char)last[i]);
	for (int i = 0; words[i]; i++)
		if (strstr(low, words[i]))
			return true;
	return (low[0] == 'w' || low[0] == 'b') && !low[1 + strspn(low + 1, "0123456789_")];
}

/* ---- what its values say ---- */

static double at(const Tensor *t, int64_t i)
{
	return t->type.dtype == DT_f64 ? ((const double *)t->data)[i] : (double)((const float *)t->data)[i];
}

static bool one_near(double x) { return fabs(x - 1) < 1e-4; }

/* Each is the one before times the same factor, as frequencies of rotary embeddings are. */
static bool geometric(const Tensor *t)
{
	const int64_t n = type_numel(&t->type);

	if (n < 2 || at(t, 0) <= 0 || at(t, 1) <= 0 || at(t, 1) == at(t, 0))
		return false;
	const double r = at(t, 1) / at(t, 0);
	for (int64_t i = 2; i < n; i++)
		if (!(fabs(at(t, i) / at(t, i - 1) / r - 1) < 1e-3))
			return false;
	return true;
}

/* Sines beside cosines of the same angles: neighbours, or halves of each row. */
static bool sinusoids(const Tensor *t)
{
	const int64_t n = type_numel(&t->type), row = t->type.rank ? t->type.dim[t->type.rank - 1] : 0, half = row / 2;
	bool beside = true, halves = true;

	if (row < 2 || row % 2 || n < 2 * row)
		return false;
	for (int64_t i = 0; i < n && (beside || halves); i += row)
		for (int64_t k = 0; k < half && (beside || halves); k++) {
			const double a = at(t, i + 2 * k), b = at(t, i + 2 * k + 1), c = at(t, i + k),
				     d = at(t, i + half + k);

			beside &= one_near(a * a + b * b);
			halves &= one_near(c * c + d * d);
		}
	return beside || halves;
}

/* Two values, one of them 0: the other hides (-inf, -100) or shows (1, in a triangle). */
static bool mask(const Tensor *t)
{
	const int64_t n = type_numel(&t->type), cols = t->type.rank > 1 ? t->type.dim[t->type.rank - 1] : 0;
	const int64_t rows = cols ? t->type.dim[t->type.rank - 2] : 0;
	double other = 0;
	int64_t zeros = 0;
	bool lower = true, upper = true;

	if (cols < 2 || rows < 2)
		return false;
	for (int64_t i = 0; i < n; i++) {
		const double x = at(t, i);
		const int64_t r = i / cols % rows, c = i % cols;

		if (x != 0 && other != 0 && x != other)
			return false;
		other = x != 0 ? x : other;
		zeros += x == 0;
		lower &= (x != 0) == (c <= r);
		upper &= (x != 0) == (c > r);
	}
	return zeros && zeros < n && (other <= -10 || ((lower || upper) && cols > 2));
}

/* Symmetric to the last bit, and neither constant nor diagonal: no weight that was drawn. */
static bool symmetric(const Tensor *t)
{
	const int64_t n = t->type.rank == 2 ? t->type.dim[0] : 0;
	bool varies = false, beside = false;

	if (n < 3 || t->type.dim[1] != n)
		return false;
	for (int64_t i = 0; i < n; i++)
		for (int64_t k = 0; k < i; k++) {
			if (at(t, i * n + k) != at(t, k * n + i))
				return false;
			varies |= at(t, i * n + k) != at(t, n);
			beside |= at(t, i * n + k) != 0;
		}
	return varies && beside;
}

/* ---- together ---- */

static Guess constant(const char *why) { return (Guess){ false, true, false, why }; }

static bool any_glob(const char *const *globs, int n, const char *name)
{
	for (int i = 0; i < n; i++)
		if (fnmatch(globs[i], name, 0) == 0)
			return true;
	return false;
}

static Guess by_values(Guesser *s, const char *name, const Tensor *t, unsigned readers)
{
	const bool weight = readers & READ_WEIGHT, named = name_is_weight(name);

	if (!t->data || (t->type.dtype != DT_f32 && t->type.dtype != DT_f64) || !type_numel(&t->type))
		return (Guess){ .param = true };
	if ((geometric(t) || (t->type.rank == 1 && strstr(name, "freq"))) && read_as(s, name, true) == READ_TRIG)
		return constant("frequencies that only Sin and Cos read");
	if (sinusoids(t))
		return constant("a table of sines and cosines");
	if (mask(t))
		return constant("a mask");
	if (weight && !named && symmetric(t))
		return constant("a symmetric matrix");
	return (Guess){ .param = true };
}

static Guess guess(Guesser *s, const char *name, const Tensor *t)
{
	const unsigned readers = read_as(s, name, false);
	const bool named = name_is_weight(name), weight = readers & READ_WEIGHT;
	const char *last = last_part(name);

	if (!(readers & ~(unsigned)READ_FLAT))
		return (Guess){ .param = t->type.rank > 0 }; /* has no gradient either way */
	if (!t->type.rank)
		return (Guess){ false, s->torch && !name_is_made(name), s->torch && !name_is_made(name), "a scalar" };
	if (name_is_made(name) && !weight)
		return constant("a constant of the exporter's, which no layer reads as its weight");
	map_init(&s->seen, s->a, true);
	if (s->torch && !weight && strstr(last, "weight") && weighs_loss(s, name, 0))
		return constant("weights of what the loss sums");
	Guess g = by_values(s, name, t, readers);
	if (!g.param || weight || named)
		return g;
	if (readers == READ_INPUT && (strcmp(last, "mean") == 0 || strcmp(last, "std") == 0))
		return constant("what normalises an input");
	return (Guess){ true, true, true, "no layer reads it as its weight" };
}

Guess guess_initializer(Guesser *s, const char *name, const Tensor *t)
{
	const ImportOpt *o = s->o;
	const bool told = any_glob(o->parameters, o->nparameters, name);
	const Guess g = told ? (Guess){ .param = true } : guess(s, name, t);
	/* what is trained is told already */
	const bool settled = g.param && (o->ntrainable || any_glob(o->freeze, o->nfreeze, name));

	if (g.said && !settled)
		map_put(&s->told, name, arena_dup(s->a, &g, sizeof g));
	return g;
}

/* The names of all that were guessed so, for the same reason; *first is the first of them. */
static const char *names_of(const Guesser *s, const Guess *g, size_t from)
{
	const char *all = "";

	for (size_t i = from; i < s->told.n; i++) {
		const Guess *x = s->told.slot[i].val;

		if (x->param == g->param && x->doubt == g->doubt && strcmp(x->why, g->why) == 0)
			all = arena_printf(s->a, "%s%s'%s'", all, *all ? ", " : "", (const char *)s->told.slot[i].key);
	}
	return all;
}

static bool said_before(const Guesser *s, size_t i)
{
	const Guess *g = s->told.slot[i].val;

	for (size_t k = 0; k < i; k++) {
		const Guess *x = s->told.slot[k].val;

		if (x->param == g->param && x->doubt == g->doubt && strcmp(x->why, g->why) == 0)
			return true;
	}
	return false;
}

bool guess_report(Guesser *s, const char *path, Diag *d)
{
	bool ok = true;

	for (size_t i = 0; i < s->told.n; i++) {
		const Guess *g = s->told.slot[i].val;
		const char *flag = g->param ? "--freeze" : "--parameters";

		if (said_before(s, i))
			continue;
		const char *text = arena_printf(s->a, "taken as %s, not as %s (%s): %s; %s NAME overrules it",
			g->param ? "a parameter" : "a constant", g->param ? "a constant" : "a parameter", g->why,
			names_of(s, g, i), flag);
		if (!g->doubt)
			diag_note(d, FILELOC(path), "%s", text);
		else if (s->o->strict)
			ok = diag_error(d, FILELOC(path), 215, "%s", text);
		else
			diag_warn(d, FILELOC(path), "parameters", "%s", text);
	}
	return ok;
}
