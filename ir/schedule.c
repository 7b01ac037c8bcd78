/* Schedules: building, printing as the papers draw them and as PyTorch writes them. */
#include "schedule.h"
#include <stdio.h>
#include <string.h>
#include "ir/base/buf.h"

static const char *const act_name[ACT_COUNT] = {
	[ACT_RECV_F] = "RECV_F",
	[ACT_F] = "F",
	[ACT_SEND_F] = "SEND_F",
	[ACT_RECV_B] = "RECV_B",
	[ACT_B] = "B",
	[ACT_SEND_B] = "SEND_B",
	[ACT_W] = "W",
	[ACT_SYNC] = "SYNC",
	[ACT_UPDATE] = "UPDATE",
};

void schedule_push(Arena *a, Schedule *s, int rank, Action act)
{
	DeviceSchedule *d = &s->dev[rank];

	PUSH(a, d->act, d->n, d->cap) = act;
}

bool schedule_in_turn(const Schedule *s, int stage)
{
	const int n = s->replicas[stage], of_step = s->async ? s->per_step : s->nmicro;
	bool blocks = true;

	for (int g = 0; g < of_step && !s->robin; g++) {
		if (s->replica_of[stage][g] != g % n)
			return false;
		blocks = blocks && s->replica_of[stage][g] == (int)((int64_t)g * n / of_step);
	}
	return !s->robin && !blocks;
}

int schedule_grains(const Schedule *s, int stage)
{
	return s->robin ? s->replicas[stage] : s->async ? s->per_step : s->nmicro;
}

int schedule_mine(const Schedule *s, int rank, int stage, int *grain)
{
	const DeviceSchedule *d = &s->dev[rank];
	int n = 0;

	const ActKind makes = !s->async && schedule_has(s, ACT_W) ? ACT_W : ACT_B;

	for (int i = 0; i < d->n && !s->async; i++)
		if (d->act[i].kind == makes && d->act[i].stage == stage)
			grain[n++] = d->act[i].mb;
	for (int i = 0; i < d->nturn; i++)
		if (d->turn[i].kind == ACT_B) {
			grain[d->turn[i].nth] = s->robin ? rank - s->device[stage][0] : d->turn[i].mb;
			n = s->robin ? 1 : n + 1;
		}
	return n;
}

static int left_size(int n)
{
	int p = 1;

	while (2 * p < n)
		p *= 2;
	return p;
}

/* done[lo] = size of a finished subtree that begins at grain lo. A subtree is whole when both halves are. */
static int merge_subtrees(int *done, int lo, int n)
{
	if (n == 1 || done[lo] == n)
		return done[lo] == n;
	const int h = left_size(n);
	const int left = merge_subtrees(done, lo, h), right = merge_subtrees(done, lo + h, n - h);
	if (!left || !right)
		return 0;
	done[lo] = n;
	done[lo + h] = 0;
	return 1;
}

int schedule_subtrees(Arena *a, int grains, const int *mine, int n, int *most)
{
	int *done = NEWN(a, int, grains), held = 0;

	*most = 1;
	for (int i = 0; i < n; i++) {
		done[mine[i]] = 1;
		*most = held + 1 > *most ? held + 1 : *most;
		merge_subtrees(done, 0, grains);
		held = 0;
		for (int g = 0; g < grains; g++)
			held += done[g] > 0;
	}
	return held;
}

const char *str_action(Arena *a, const Action *x)
{
	if (x->mb < 0)
		return arena_printf(a, "%d%s", x->stage, act_name[x->kind]);
	return arena_printf(a, "%d%s%d", x->stage, act_name[x->kind], x->mb);
}

bool schedule_each(const Module *m)
{
	const Schedule *s = m->schedule;

	for (int t = module_stages(m); s && t < m->nstage; t++) {
		const DeviceSchedule *d = &s->dev[m->stage[t]->rank];
		if (d->act[d->n - 1].kind != ACT_UPDATE)
			return true;
	}
	return false;
}

bool schedule_has(const Schedule *s, ActKind k)
{
	for (int r = 0; r < s->ndevice; r++)
		for (int i = 0; i < s->dev[r].n; i++)
			if (s->dev[r].act[i].kind == k)
				return true;
	return false;
}

const char *schedule_word(bool split, ActKind k) { return k == ACT_B && split ? "I" : act_name[k]; }

void schedule_print_csv(Buf *b, const Schedule *s)
{
	const bool split = schedule_has(s, ACT_W);

	for (int r = 0; r < s->ndevice; r++) {
		for (int i = 0; i < s->dev[r].n; i++) {
			const Action *x = &s->dev[r].act[i];

			buf_printf(b, "%s%d%s", i ? "," : "", x->stage, schedule_word(split, x->kind));
			if (x->mb >= 0)
				buf_printf(b, "%d", x->mb);
			if (s->async && (x->kind == ACT_F || x->kind == ACT_B || x->kind == ACT_UPDATE))
				buf_printf(b, "v%d", x->version);
		}
		buf_putc(b, '\n');
	}
}

/* ---- the grid: F takes one unit of time, B two; where backwards are in two parts F, I and W take one each ---- */

enum { GRID_COLUMNS = 400, CELL = 8 };

typedef struct Grid {
	const Schedule *s;
	char (*cell)[GRID_COLUMNS][CELL];
	int *free_at, *end_f, *end_b, *chunk;
	int last;
	bool split, chunks;
} Grid;

/* When the computation can begin; -1: what it needs has not been drawn yet. */
static int earliest(const Grid *g, const Action *x)
{
	const int m = g->s->nmicro, st = x->stage;
	int need;

	if (x->kind == ACT_F)
		need = st ? g->end_f[(st - 1) * m + x->mb] : 0;
	else if (x->kind == ACT_W)
		need = g->end_b[st * m + x->mb];
	else
		need = st + 1 < g->s->nstage ? g->end_b[(st + 1) * m + x->mb] : g->end_f[st * m + x->mb];
	return need || (x->kind == ACT_F && !st) ? need : -1;
}

/* Stages of one device are told apart by a letter: F0a, F0b. */
static void draw(Grid *g, int rank, const Action *x, int need)
{
	const int t = need > g->free_at[rank] ? need : g->free_at[rank], len = x->kind == ACT_B && !g->split ? 2 : 1;
	const char letter[2] = { g->chunks ? (char)('a' + g->chunk[x->stage] % 26) : 0, 0 };

	for (int k = 0; k < len && t + k < GRID_COLUMNS; k++)
		snprintf(g->cell[rank][t + k], CELL, "%s%d%s", x->kind == ACT_B && g->split ? "I" : act_name[x->kind],
			x->mb % 1000, letter);
	g->free_at[rank] = t + len;
	if (x->kind != ACT_W)
		(x->kind == ACT_F ? g->end_f : g->end_b)[x->stage * g->s->nmicro + x->mb] = t + len;
	g->last = t + len > g->last ? t + len : g->last;
}

static Grid *fill_grid(Arena *a, const Schedule *s)
{
	Grid *g = NEW(a, Grid);
	int *at = NEWN(a, int, s->ndevice);

	*g = (Grid){ .s = s,
		.cell = arena_alloc(a, sizeof *g->cell * (size_t)s->ndevice),
		.split = schedule_has(s, ACT_W),
		.free_at = NEWN(a, int, s->ndevice),
		.end_f = NEWN(a, int, s->nstage * s->nmicro),
		.end_b = NEWN(a, int, s->nstage * s->nmicro),
		.chunk = NEWN(a, int, s->nstage) };
	for (int t = 0; t < s->nstage; t++) {
		for (int u = 0; u < t; u++)
			g->chunk[t] += s->device[u][0] == s->device[t][0];
		g->chunks |= g->chunk[t] > 0;
	}
	for (bool moved = true; moved;) {
		moved = false;
		for (int r = 0; r < s->ndevice; r++)
			for (; at[r] < s->dev[r].n; at[r]++) {
				const Action *x = &s->dev[r].act[at[r]];
				if (x->kind != ACT_F && x->kind != ACT_B && x->kind != ACT_W)
					continue;
				const int need = earliest(g, x);
				if (need < 0)
					break;
				moved = true;
				draw(g, r, x, need);
			}
	}
	return g;
}

void schedule_print_grid(Buf *b, const Schedule *s)
{
	Arena *a = arena_new();
	const Grid *g = fill_grid(a, s);

	for (int r = 0; r < s->ndevice; r++) {
		buf_printf(b, "d%-3d", r);
		for (int t = 0; t < g->last && t < GRID_COLUMNS; t++)
			buf_printf(b, " %-4s", g->cell[r][t][0] ? g->cell[r][t] : ".");
		buf_putc(b, '\n');
	}
	arena_free(a);
}
