/* pdcc inspect, pdcc cases. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "../codegen/emit.h"
#include "compile.h"
#include "onnx.h"

static void count_ops(const Compile *c)
{
	int count[OP_COUNT] = { 0 };

	for (const Node *n = c->m->graph->first; n; n = n->next)
		count[n->op]++;
	printf("operators (canonical):");
	for (int i = 1; i < OP_COUNT; i++)
		if (count[i])
			printf(" %s x%d", optab[i]->name, count[i]);
	putchar('\n');
}

/* The model as it was understood: inputs, parameters, operators, arithmetic. */
int inspect_main(Compile *c)
{
	if (!compile_read(c))
		return compile_status(c);
	const Module *m = c->m;
	double flops = 0;
	int64_t bytes = 0;

	printf("%s: opset %d, %d nodes after folding, microbatch %lld%s\n", m->name, m->opset, m->graph->nnodes, (long long)m->batch,
		m->export_batch && m->export_batch != m->batch ? " (re-bound)" : "");
	for (int i = 0; i < m->graph->nin; i++)
		printf("input  %-24s %s batch axis %d\n", m->graph->in[i]->name, str_type(c->a, &m->graph->in[i]->type),
			m->graph->in[i]->batch_axis);
	for (int i = 0; i < m->graph->nout; i++)
		printf("output %-24s %s\n", m->graph->out[i]->name, str_type(c->a, &m->graph->out[i]->type));
	for (int i = 0; i < m->nparam; i++) {
		const Value *v = m->param[i];

		printf("param  %-32s %-18s %s%s\n", v->name, str_type(c->a, &v->type), v->param->kind == PARAM_BUFFER ? "buffer" : "",
			v->nuses > 1 ? " used more than once" : v->nuses ? "" : " unused");
		bytes += type_bytes(&v->type);
	}
	count_ops(c);
	for (const Node *n = m->graph->first; n; n = n->next)
		if (optab[n->op]->cost)
			flops += optab[n->op]->cost(n).flops;
	printf("forward %.4g MFLOP per microbatch, parameters %.4g MB\n", flops / 1e6, (double)bytes / 1e6);
	return 0;
}

/* Runs the passes that a training graph needs when the case asks for gradients ("name model.onnx grad"). */
static Module *one_case(Compile *c, const char *path, bool grad)
{
	ImportOpt io = { .keep_eval = !grad, .f64 = c->o->t.f64, .bind = c->o->t.bind, .nbind = c->o->t.nbind };
	Module *m = onnx_import(c->a, path, &io, c->d);
	static const char *const fwd[] = { "shapes", "simplify", "patterns" };
	static const char *const all[] = { "shapes", "train", "simplify", "patterns", "autodiff", "cleanup" };
	PassCx cx = { .scratch = c->scratch, .d = c->d, .cluster = &c->cluster, .train = &c->o->t, .plan = &c->plan };
	PassOpt po = { 0 };

	if (!m)
		return NULL;
	m->microbatches = 1;
	if (!run_passes(m, &cx, &po, grad ? all : fwd, grad ? 6 : 3))
		return NULL;
	for (Node *n = m->graph->first; n; n = n->next) {
		if (optab[n->op]->lib)
			n->scratch = CASES_SCRATCH;
		if (grad && n->op == OP_Accumulate) {       /* what is summed up is the gradient: outputs grad.w, grad.w.1 .. */
			Builder b = { .m = m, .g = m->graph, .before = n, .loc = n->loc, .phase = PHASE_BWD, .stage = -1, .d = c->d };

			for (int i = n->out[0]->nuses; i > 0; i--)      /* equal parts are one node, used more than once */
				graph_output(m->graph, mk(&b, OP_Identity, NULL, arena_printf(c->a, "grad.%s", n->out[0]->name + 2), 1, n->in[0]));
		}
	}
	return m;
}

/* LIST has lines `NAME MODEL.onnx [grad]`. A case that is refused is told on standard output as `skip NAME: why` and left
 * out; the others go into one program. */
int cases_main(Compile *c)
{
	char *text = file_read(c->model, NULL);
	Module **m = NULL;
	const char **name = NULL;
	int n = 0, capm = 0, nname = 0, capname = 0;
	FILE *out = c->d->out;

	if (!text)
		return diag_error(c->d, FILELOC(c->model), 201, "cannot read the list: %s", strerror(errno)), EXIT_INPUT;
	if (!c->o->out)
		return diag_error(c->d, NOLOC, 1, "-o DIR is missing"), EXIT_USAGE;
	c->o->t.threads = 1;
	for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
		char id[256], path[4096], what[16] = "";
		char *said = NULL;
		size_t len = 0;

		if (sscanf(line, "%255s %4095s %15s", id, path, what) < 2)
			continue;
		c->d->out = open_memstream(&said, &len);
		c->d->errors = 0;
		Module *x = one_case(c, path, strcmp(what, "grad") == 0);
		fclose(c->d->out);
		if (x) {
			PUSH(c->a, m, n, capm) = x;
			PUSH(c->a, name, nname, capname) = arena_str(c->a, id);
		} else {
			said[strcspn(said, "\n")] = 0;
			printf("skip %s: %s\n", id, said);
		}
		free(said);
	}
	free(text);
	c->d->out = out;
	c->d->errors = 0;
	return codegen_cases(m, name, n, c->o->out, c->d) ? 0 : EXIT_INPUT;
}
