/* What calls of PyTorch's say that their nodes do not: the newer exporter writes each call beside its nodes. A
 * detach() is an Identity, a row of padding is gone, and so are label_smoothing and scale_grad_by_freq, which change
 * what is trained. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include "torch.h"
#include "torch_calls.h"

/* Behind "(args = (" of a call of the operator; NULL: it is another call. */
static const char *arguments(const char *call, const char *op)
{
	const char *target = call ? strstr(call, "[target=torch.ops.aten.") : NULL;
	const size_t n = strlen(op);

	if (!target)
		return NULL;
	target += strlen("[target=torch.ops.aten.");
	if (strncmp(target, op, n) || target[n] != '.')
		return NULL;
	const char *args = strstr(target, "(args = (");
	return args ? args + strlen("(args = (") : NULL;
}

/* Argument k, from 0, up to the comma behind it; "": there are fewer. Lists are one argument. */
static const char *argument(Arena *a, const char *args, int k)
{
	for (int depth = 0; args && *args; args++) {
		depth += (*args == '(' || *args == '[') - (*args == ')' || *args == ']');
		if (depth < 0)
			return "";
		if (k == 0)
			return arena_strn(a, args + strspn(args, " "), strcspn(args + strspn(args, " "), ",)"));
		k -= *args == ',' && !depth;
	}
	return "";
}

bool torch_detached(Arena *a, const OnnxNode *n) { return arguments(torch_call(a, n), "detach") != NULL; }

/* The name of a detach() that the call reads, and that nothing of the graph is called: an optimized export has it no
 * more. */
static const char *detach_gone(Import *im, const char *call)
{
	const char *p = call ? strstr(call, "(args = (") : NULL;

	while (p && (p = strstr(p, "%detach"))) {
		size_t n = strlen("%detach");

		if (p[n] == '_' && isdigit((unsigned char)p[n + 1]))
			n += 1 + strspn(p + n + 1, "0123456789");
		const char *name = arena_strn(im->a, p + 1, n - 1);
		if (p[n] != '_' && !isalnum((unsigned char)p[n]) && !map_has(&im->env, name))
			return name;
		p += n;
	}
	return NULL;
}

bool torch_call_kept(Import *im, const OnnxNode *n)
{
	const char *call = torch_call(im->a, n), *smoothed = arguments(call, "cross_entropy_loss"),
		   *looked = arguments(call, "embedding"), *gone = im->detach_told ? NULL : detach_gone(im, call);

	if (smoothed && strtod(argument(im->a, smoothed, 5), NULL) != 0)
		return diag_error(im->d, im->b.loc, 219,
			"cross_entropy was called with label_smoothing=%s, and the node has none: PyTorch's exporter drops it; "
			"pdcc.export keeps it",
			argument(im->a, smoothed, 5));
	if (looked && !strcmp(argument(im->a, looked, 3), "True"))
		return diag_error(im->d, im->b.loc, 219,
			"embedding was called with scale_grad_by_freq=True, which no graph has: its gradients would not be "
			"divided; leave it out");
	if (gone) {
		diag_warn(im->d, im->b.loc, "detach",
			"the call reads '%s', a detach() that is not in the graph: the exporter's optimizer took it out, so "
			"gradients run through it; export with optimize=False",
			gone);
		im->detach_told = true;
	}
	return true;
}

bool torch_padding(Import *im, const OnnxNode *n)
{
	const char *row = argument(im->a, arguments(torch_call(im->a, n), "embedding"), 2);
	const Value *v = n->n_output && isdigit((unsigned char)*row) ? map_get(&im->env, n->output[0]) : NULL;

	if (!v || v->kind != VAL_NODE || v->def->op != OP_Gather)
		return true;
	attr_set_int(v->def, "padding", strtoll(row, NULL, 10));
	return optab[OP_Gather]->shape(v->def, im->d);
}
