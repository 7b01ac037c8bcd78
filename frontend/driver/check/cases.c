/* pdcc cases: many small models in one program, for tests. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "codegen/folder/emit.h"
#include "frontend/driver/compile/compile.h"
#include "frontend/onnx/onnx.h"

/* Runs the passes that a training graph needs when the case asks for gradients ("name model.onnx grad"). */
static Module *one_case(Compile *c, const char *path, bool grad)
{
	ImportOpt io = {
		.keep_eval = !grad, .f64 = c->o->t.target.f64, .bind = c->o->t.data.bind, .nbind = c->o->t.data.nbind
	};
	Module *m = onnx_import(c->a, path, &io, c->d);
	static const char *const fwd[] = { "shapes", "simplify", "patterns" };
	static const char *const all[] = { "shapes", "train", "simplify", "patterns", "autodiff", "cleanup",
		"recurrent" };
	PassCx cx = { .scratch = c->scratch, .d = c->d, .cluster = &c->cluster, .train = &c->o->t, .plan = &c->plan };
	PassOpt po = { 0 };

	if (!m)
		return NULL;
	m->microbatches = 1;
	if (!run_passes(m, &cx, &po, grad ? all : fwd, grad ? 7 : 3))
		return NULL;
	for (Node *n = m->graph->first; n; n = n->next) {
		if (optab[n->op]->lib)
			n->scratch = CASES_SCRATCH;
		if (grad &&
			n->op == OP_Accumulate) { /* what is summed up is the gradient: outputs grad.w, grad.w.1 .. */
			Builder b = { .m = m,
				.g = m->graph,
				.before = n,
				.loc = n->loc,
				.phase = PHASE_BWD,
				.stage = -1,
				.d = c->d };

			for (int i = n->out[0]->nuses; i > 0; i--) /* equal parts are one node, used more than once */
				graph_output(m->graph,
					mk(&b, OP_Identity, NULL, arena_printf(c->a, "grad.%s", n->out[0]->name + 2), 1,
						n->in[0]));
		}
	}
	return m;
}

/* LIST has lines `NAME MODEL.onnx [grad]`. A case that is refused is told on standard output as `skip NAME: why` and
 * left out; the others go into one program. */
int cases_main(Compile *c)
{
	char *text = file_read(c->model, NULL);
	Module **m = NULL;
	const char **name = NULL;
	int n = 0, capm = 0, nname = 0, capname = 0;
	FILE *out = c->d->out;

	if (!text)
		return diag_error(c->d, FILELOC(c->model), 201, "cannot read the list: %s", strerror(errno)),
		       EXIT_INPUT;
	if (!c->o->out)
		return diag_error(c->d, NOLOC, 1, "-o DIR is missing"), EXIT_USAGE;
	c->o->t.target.threads = 1;
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
	return codegen_cases(m, name, n, &c->o->t, c->o->out, c->d) ? 0 : EXIT_INPUT;
}
