/* Weights of recurrent nets in exports that PyTorch's newer exporter optimized: the gates of each parameter in ONNX's
 * order, all directions in one tensor. The parameters are taken out of it again; nodes put them together. */
#include <string.h>
#include "torch_unfold.h"

typedef struct Net {
	const char *op, *call;
	int gates, order[4]; /* ONNX's gates as PyTorch counts them */
} Net;

static const Net nets[] = {
	{ "LSTM", "aten.lstm", 4, { 0, 3, 1, 2 } }, /* i o f c of i f c o */
	{ "GRU", "aten.gru", 3, { 1, 0, 2 } },      /* z r h of r z h */
	{ "RNN", "aten.rnn", 1, { 0 } },
};

/* What reads the value, as W, R or B, and only that; NULL: something else does. */
static const Net *reader(const Unfold *u, const char *value, size_t *operand, const char **call)
{
	const Net *net = NULL;

	for (size_t i = 0; i < u->g->n_node; i++) {
		const OnnxNode *n = u->g->node[i];

		for (size_t k = 0; k < n->n_input; k++) {
			if (strcmp(n->input[k], value))
				continue;
			if (net || k < 1 || k > 3)
				return NULL;
			*operand = k;
			*call = torch_call(u->a, n);
			for (size_t j = 0; j < sizeof nets / sizeof *nets; j++)
				if (strcmp(n->op_type, nets[j].op) == 0 && *call && strstr(*call, nets[j].call))
					net = &nets[j];
			if (!net)
				return NULL;
		}
	}
	return net;
}

/* Nodes: each parameter split into its gates, all of them in ONNX's order as one tensor of t's shape. */
static void together(Unfold *u, const OnnxTensor *t, const char *const *param, int n, const Net *net)
{
	OnnxNode *cat = NULL;
	OnnxTensor *shape = NEW(u->a, OnnxTensor);
	OnnxNode **split = NEWN(u->a, OnnxNode *, n);

	for (int i = 0; i < n; i++) {
		split[i] = unfold_node(u, "Split", arena_printf(u->a, "%s/gates", param[i]), 1, (size_t)net->gates);
		*split[i]->input = arena_str(u->a, param[i]);
		OnnxAttr *parts = unfold_attr(u, split[i], "num_outputs");
		parts->type = ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INT;
		parts->has_i = 1;
		parts->i = net->gates;
		for (int k = 0; k < net->gates; k++)
			split[i]->output[k] = arena_printf(u->a, "%s/gate%d", param[i], k);
	}
	cat = unfold_node(u, "Concat", arena_printf(u->a, "%s/concat", t->name), (size_t)(n * net->gates), 1);
	for (int i = 0; i < n; i++)
		for (int k = 0; k < net->gates; k++)
			cat->input[i * net->gates + k] = split[i]->output[net->order[k]];
	*cat->output = arena_printf(u->a, "%s/gates", t->name);
	OnnxAttr *axis = unfold_attr(u, cat, "axis");
	axis->type = ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INT;
	axis->has_i = 1;
	onnx__tensor_proto__init(shape);
	shape->name = arena_printf(u->a, "%s/shape", t->name);
	shape->has_data_type = shape->has_raw_data = 1;
	shape->data_type = dtype_onnx(DT_i64);
	shape->n_dims = 1;
	shape->dims = NEW(u->a, int64_t);
	*shape->dims = (int64_t)t->n_dims;
	shape->raw_data.len = t->n_dims * sizeof *t->dims;
	shape->raw_data.data = arena_dup(u->a, t->dims, shape->raw_data.len);
	unfold_add(u, shape);
	OnnxNode *y = unfold_node(u, "Reshape", arena_printf(u->a, "%s/reshape", t->name), 2, 1);
	y->input[0] = *cat->output;
	y->input[1] = shape->name;
	*y->output = t->name;
}

bool unfold_recurrent(Unfold *u, OnnxTensor *t, const char **param, int n, bool *done)
{
	size_t operand = 0;
	const char *call = NULL;
	const Net *net = reader(u, t->name, &operand, &call);
	Tensor x = { 0 };

	*done = false;
	if (!net || t->n_dims != (operand == 3 ? 2U : 3U) || t->dims[0] * (operand == 3 ? 2 : 1) != n)
		return true;
	int64_t rows = t->dims[1] / (operand == 3 ? 2 : 1), inner = operand == 3 ? 1 : t->dims[2];
	if (rows < 1 || rows % net->gates)
		return true;
	for (int i = 0; i < n; i++) { /* the call names them layer by layer, one direction after the other */
		const char *p = param[i];
		int k = i;

		if (map_get(&u->have, p) || !unfold_reads(u, call, p))
			return true;
		for (; k && unfold_place(u, call, param[k - 1]) > unfold_place(u, call, p); k--)
			param[k] = param[k - 1];
		param[k] = p;
	}
	if (!onnx_tensor(u->a, u->path, t, u->types_only, &x, FILELOC(u->path), u->d))
		return false;
	size_t gate = (size_t)(rows / net->gates * inner) * (size_t)dtype_bytes(dtype_from_onnx(t->data_type));
	for (int i = 0; i < n; i++) {
		char *data;

		unfold_param(u, t, param[i], (int64_t[]){ rows, inner }, operand == 3 ? 1 : 2, &data);
		for (int k = 0; data && k < net->gates; k++)
			memcpy(data + (size_t)net->order[k] * gate,
				(const char *)x.data + (size_t)(i * net->gates + k) * gate, gate);
	}
	unfold_drop(u, t);
	together(u, t, param, n, net);
	*done = true;
	return true;
}
