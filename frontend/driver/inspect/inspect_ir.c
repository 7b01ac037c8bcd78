/* pdcc inspect FILE.pdir: what a dump of the IR holds. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include "passes/simulate/timeline.h"
#include "inspect.h"
#include "ir/base/human.h"

enum { WIDTH = 98, STAGES = 40, GRID = 100 };

/* The last pass of the pipeline whose mark the module bears. */
static const char *behind(const Module *m)
{
	const char *name = NULL;

	for (int i = 0; i < npasses; i++)
		if (pass_table[i].gives && (m->has & pass_table[i].gives) == pass_table[i].gives)
			name = pass_table[i].name;
	return name;
}

static void count(const Graph *g, int *of, double *time)
{
	for (const Node *n = g ? g->first : NULL; n; n = n->next) {
		of[n->op]++;
		*time += n->time;
	}
}

static int nodes(const int *of)
{
	int n = 0;

	for (int i = 0; i < OP_COUNT; i++)
		n += of[i];
	return n;
}

static void print_ops(const int *of)
{
	int at = 0;

	printf("\noperators\n");
	for (int i = 0; i < OP_COUNT; i++) {
		char word[80];

		if (!of[i])
			continue;
		const int n = snprintf(word, sizeof word, "  %s %d", optab[i]->name, of[i]);
		if (at + n > WIDTH) {
			putchar('\n');
			at = 0;
		}
		fputs(word, stdout);
		at += n;
	}
	putchar('\n');
}

static void print_params(const Module *m, Arena *a)
{
	int count_of[3] = { 0 };
	int64_t bytes[3] = { 0 };
	static const char *const name[3] = { "weights", "buffers", "optimizer state" };

	for (int i = 0; i < m->nparam; i++) {
		const Value *v = m->param[i];
		const int k = v->param->kind == PARAM_WEIGHT ? 0 : v->param->kind == PARAM_BUFFER ? 1 : 2;
		count_of[k]++;
		bytes[k] += type_bytes(&v->type);
	}
	for (int k = 0; k < 3; k++)
		if (count_of[k])
			printf("  %-16s %5d  %12s\n", name[k], count_of[k], str_bytes(a, bytes[k]));
	if (m->nkonst)
		printf("  %-16s %5d\n", "constants", m->nkonst);
}

static void print_stages(const Module *m, Arena *a, int *of)
{
	printf("\n%-10s %-14s %5s %9s %9s %7s %11s %11s %12s\n", "stage", "devices", "nodes", "forward", "backward",
		"update", "in flight", "weights", "memory");
	for (int t = 0; t < m->nstage; t++) {
		const Stage *s = m->stage[t];
		double time[3] = { 0 };
		int own[OP_COUNT] = { 0 };
		const char *devices = "";

		count(s->forward, own, &time[0]);
		count(s->backward, own, &time[1]);
		count(s->weight, own, &time[1]);
		count(s->update, own, &time[2]);
		for (int i = 0; i < OP_COUNT; i++)
			of[i] += own[i];
		for (int r = 0; r < s->replicas; r++)
			devices = arena_printf(a, "%s%s%d", devices, r ? "," : "", s->device[r]);
		if (t < STAGES)
			printf("%-10s %-14.14s %5d %9s %9s %7s %11d %11s %12s\n",
				arena_printf(a, s->server ? "server %d" : "%d", t), devices, nodes(own),
				time_text(a, time[0]), time_text(a, time[1]), time_text(a, time[2]), s->inflight,
				s->arena ? str_bytes(a, s->bytes[REGION_PARAMS]) : "-",
				s->arena ? str_bytes(a, s->arena) : "-");
	}
	if (m->nstage > STAGES)
		printf("... and %d more\n", m->nstage - STAGES);
}

static void print_schedule(const Schedule *s)
{
	Buf b = { 0 };
	int actions = 0;

	for (int r = 0; r < s->ndevice; r++)
		actions += s->dev[r].n;
	printf("\nschedule %s: %d devices, %d microbatches%s, %d actions\n", s->name, s->ndevice, s->nmicro,
		s->async ? " shown" : "", actions);
	schedule_print_grid(&b, s);
	if (b.n && strcspn(buf_str(&b), "\n") <= GRID && s->ndevice <= STAGES)
		fputs(buf_str(&b), stdout);
	buf_free(&b);
}

int inspect_ir(Compile *c)
{
	size_t n;
	char *text = file_read(c->model, &n);
	int of[OP_COUNT] = { 0 };
	double time = 0;

	if (!text)
		return diag_error(c->d, FILELOC(c->model), 201, "cannot read the file: %s", strerror(errno)),
		       EXIT_INPUT;
	if (strlen(text) != n)
		return free(text), diag_error(c->d, FILELOC(c->model), 201, "not a text file"), EXIT_INPUT;
	const Module *m = module_parse(c->a, c->model, text, c->d);
	free(text);
	if (!m || !module_verify(m, c->d))
		return EXIT_INPUT;
	const char *after = behind(m);
	printf("%s: module %s of %s, opset %d", c->model, str_shown(c->a, m->name),
		m->file ? str_shown(c->a, m->file) : "-", m->opset);
	printf(after ? ", behind the pass %s or later\n" : ", no pass has run\n", after);
	printf("  microbatch %" PRId64, m->batch);
	if (m->microbatches)
		printf(", %" PRId64 " microbatches a step", m->microbatches);
	printf(m->step_time > 0 ? ", predicted step %s\n" : "\n", time_text(c->a, m->step_time));
	print_params(m, c->a);
	if (m->graph) {
		count(m->graph, of, &time);
		printf("  %-16s %5d\n", "nodes", nodes(of));
	} else {
		print_stages(m, c->a, of);
	}
	print_ops(of);
	if (m->schedule)
		print_schedule(m->schedule);
	return 0;
}
