/* inputs_used.c: what a run read, for summary.json: each input of each rank, once. */
#include "input.h"
#include "safetensors.h"
#include <stdio.h>
#include <stdlib.h>

static char *lines; /* of rank 0: a JSON object in each */

static void describe(FILE *f, const source *s)
{
	fprintf(f, "{\"name\": ");
	rt_json_text(f, s->d->name);
	fprintf(f, ", \"set\": \"%s\", \"kind\": \"%s\"", s->eval ? "evaluation" : "training",
		s->synthetic ? "synthetic" : s->kind);
	if (!s->synthetic) {
		fprintf(f, ", \"file\": ");
		rt_json_text(f, s->path);
		fprintf(f, ", \"dtype\": \"%s\", \"shape\": [", st_dtype((int)s->a.dtype));
		for (int i = 0; i < s->a.rank; i++)
			fprintf(f, "%s%lld", i ? ", " : "", (long long)s->a.dim[i]);
		fputc(']', f);
	}
	if (s->d->batch_axis >= 0)
		fprintf(f, ", \"samples\": %lld", (long long)s->samples);
	fprintf(f, "}\n");
}

/* Those of `more` that are not in `lines` yet. */
static void add(const char *more)
{
	for (const char *end; (end = strchr(more, '\n')); more = end + 1) {
		const size_t n = (size_t)(end - more) + 1, have = lines ? strlen(lines) : 0;
		bool there = false;

		for (const char *l = lines; l && *l && !there; l = strchr(l, '\n') + 1)
			there = !strncmp(l, more, n);
		if (there)
			continue;
		lines = realloc(lines, have + n + 1);
		if (!lines)
			rt_fail(RT_MEMORY, "R501", "no memory for %zu bytes", have + n + 1);
		memcpy(lines + have, more, n);
		lines[have + n] = 0;
	}
}

void input_tell(const pd_program *p, const source *const set[2], const int n[2])
{
	char *mine = NULL;
	size_t bytes = 0;
	FILE *f = open_memstream(&mine, &bytes);

	for (int k = 0; f && k < 2; k++)
		for (int i = 0; i < n[k]; i++)
			if (!set[k][i].presence)
				describe(f, &set[k][i]);
	if (!f || fclose(f))
		rt_fail(RT_MEMORY, "R501", "no memory for the names of inputs");
	if (p->rank == 0)
		add(mine);
	for (int r = 1; r < p->world && !rt_alone; r++)
		if (p->rank == 0) {
			size_t others;

			rt_recv(r, RT_TAG_FILE, &others, sizeof others);
			char *text = rt_alloc(others + 1);

			if (others)
				rt_recv(r, RT_TAG_FILE, text, others);
			add(text);
			free(text);
		} else if (r == p->rank) {
			rt_send(0, RT_TAG_FILE, &bytes, sizeof bytes);
			if (bytes)
				rt_send(0, RT_TAG_FILE, mine, bytes);
		}
	free(mine);
}

void rt_inputs_write(FILE *f)
{
	fprintf(f, " \"inputs\": [");
	for (const char *l = lines, *end; l && (end = strchr(l, '\n')); l = end + 1)
		fprintf(f, "%s\n  %.*s", l == lines ? "" : ",", (int)(end - l), l);
	fprintf(f, "],\n");
}
