/* Operators that pdcc does not have: all of a graph at once, and what to do about them. */
#include <string.h>
#include "ir/base/buf.h"
#include "frontend/onnx/torch.h"

/* What to do about operators that no graph of fixed shapes has. */
static const char *remedy(const char *op)
{
	if (strcmp(op, "Scan") == 0)
		return "export with the loop unrolled over a fixed length: a traced export does that, a scripted one keeps the loop";
	if (strcmp(op, "SequenceMap") == 0)
		return "lists of tensors need a fixed length: export with the loop over the list unrolled (Split, Concat, Stack)";
	if (strncmp(op, "Optional", 8) == 0)
		return "optional values are not supported: export with every input given, and loops unrolled over fixed lengths";
	return "is not supported";
}

typedef struct Unknown {
	const OnnxNode *n;
	size_t index;
	struct Unknown *next;
} Unknown;

static const char *domain_of(const OnnxNode *n) { return n->domain ? n->domain : ""; }

/* Nodes of unknown operators, in order, behind *end. What stands in the branches of an If counts only where no branch is
 * without: which one is taken is not known yet. index: of the node that holds g, or SIZE_MAX. */
static Unknown **unknown_nodes(Import *im, const OnnxGraph *g, size_t index, Unknown **end)
{
	for (size_t i = 0; i < g->n_node; i++) {
		const OnnxNode *n = g->node[i];
		const size_t at = index == SIZE_MAX ? i : index;
		Unknown **from = end;

		if (!n->op_type || !canon_supported(n->op_type, domain_of(n))) {
			*end = NEW(im->a, Unknown);
			**end = (Unknown){ n, at, NULL };
			end = &(*end)->next;
			continue;
		}
		for (size_t k = 0; k < n->n_attribute; k++) {
			Unknown **was = end;

			if (!n->attribute[k]->g)
				continue;
			end = unknown_nodes(im, n->attribute[k]->g, at, end);
			if (end == was) { /* this branch is fine */
				end = from;
				*end = NULL;
				break;
			}
		}
	}
	return end;
}

/* Every operator that is not known, with its nodes, at once. */
bool onnx_operators(Import *im, const OnnxGraph *g)
{
	Map seen;
	Buf list = { 0 };
	Unknown *all = NULL;

	map_init(&seen, im->a, true);
	unknown_nodes(im, g, g == im->top ? SIZE_MAX : (size_t)im->b.loc.node, &all);
	for (Unknown *u = all; u; u = u->next) {
		const char *domain = domain_of(u->n);

		if (!u->n->op_type || !*u->n->op_type)
			return diag_error(im->d, FILELOC(im->path), 206, "node #%zu has no operator", u->index);
		const char *full = *domain ? arena_printf(im->a, "%s.%s", domain, u->n->op_type) : u->n->op_type;
		map_put(&seen, full, (void *)((uintptr_t)map_get(&seen, full) + 1)); /* counts */
	}
	for (size_t i = 0; i < seen.n; i++)
		buf_printf(&list, "%s%s x%zu", i ? ", " : "", (const char *)seen.slot[i].key, (size_t)seen.slot[i].val);
	if (seen.n)
		diag_error(im->d, FILELOC(im->path), 301, "%zu operator%s unsupported: %s", seen.n,
			seen.n > 1 ? "s" : "", buf_str(&list));
	for (Unknown *u = all; u; u = u->next)
		diag_note(im->d,
			(Loc){ im->path, 0, 0, onnx_index(im, u->n, u->index), u->n->name, u->n->op_type,
				torch_module(im->a, u->n) },
			"%s", remedy(u->n->op_type));
	buf_free(&list);
	return seen.n == 0;
}
