/* Exports that are no training graphs: weights folded into others, or merged because they were equal. */
#include <string.h>
#include "frontend/onnx/onnx_file.h"
#include "frontend/onnx/torch.h"

/* val_N with floats in it: PyTorch's newer exporter names a constant so that it folded, or a weight; without its signature
 * one cannot tell which. */
static bool folded_name(const OnnxTensor *t)
{
	return strncmp(t->name, "val_", 4) == 0 && t->name[4] && !t->name[4 + strspn(t->name + 4, "0123456789")] &&
	       t->n_dims && dtype_float(dtype_from_onnx(t->data_type));
}

/* A weight, not a mask that an Identity passes on. The newer exporter merges no equal weights that way: an Identity of it is
 * a clone() of the model. */
static bool is_weight(const Import *im, const OnnxGraph *g, const char *name)
{
	for (size_t i = 0; i < g->n_initializer && !im->torch; i++)
		if (g->initializer[i]->name && strcmp(g->initializer[i]->name, name) == 0)
			return dtype_float(dtype_from_onnx(g->initializer[i]->data_type));
	return false;
}

bool onnx_refuse_inference(Import *im, const OnnxGraph *g)
{
	bool norm = false, folded = false;
	const char *alias = NULL;

	for (size_t i = 0; i < g->n_node; i++) {
		const OnnxNode *n = g->node[i];

		norm |= strcmp(n->op_type, "BatchNormalization") == 0;
		if (strcmp(n->op_type, "Identity") == 0 && n->n_input && is_weight(im, g, n->input[0]))
			alias = n->input[0];
	}
	const char *mark = NULL;
	for (size_t i = 0; i < g->n_initializer && !folded; i++) {
		const char *s = g->initializer[i]->name;

		folded = s && !im->contract &&
		         (strncmp(s, "onnx::Conv_", 11) == 0 || strncmp(s, "onnx::MatMul_", 13) == 0 ||
				 (!im->torch && folded_name(g->initializer[i])));
		if (folded)
			mark = s;
	}
	if (!folded && (norm || !alias || im->contract))
		return true;
	diag_error(im->d, FILELOC(im->path), 208, "this is an inference export: %s '%s'",
		folded ? "weights were folded into" : "equal weights were merged through Identity of",
		folded ? mark : alias);
	diag_note(im->d, FILELOC(im->path), "export for training: torch.onnx.export(%s)",
		mark && strncmp(mark, "val_", 4) == 0
			? "model.train(), args, path, dynamo=True, optimize=False"
			: "model, args, path, training=torch.onnx.TrainingMode.TRAINING, do_constant_folding=False");
	return false;
}
