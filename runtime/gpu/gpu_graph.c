/* gpu_graph.c: CUDA graphs. The functions of a device's actions (a forward, a backward, an update) start the same kernels with the
 * same arguments in every step, once what depends on the step is read from device memory (pd_late). So each is captured in the third
 * step, called once more as it was, and from the next step on started as one graph. Graphs are made between the two: the driver asks for
 * memory and may wait for all of the device, where in the middle of a step a message from another rank may be waited for. The first two
 * steps run as they are, and the second one is watched: what a function has the host do before its kernels (inputs, waits for messages) is
 * done before its graph too, and a loss that it reports is noted behind it. Where it asks the host or the device for a number, or waits,
 * there are no graphs for functions of its kind.
 *
 * A function that begins sums of gradients (buckets), or tells other members of a tensor group something, is several graphs: what comes
 * before that, which is the host's, and what comes behind. Where something
 * of it fails, with --cuda-graphs auto, one line says why, and there are no graphs of functions of its kind from then on. */
#include "gpu_rt.h"
#include <stdlib.h>

typedef struct todo {
	rt_todo what;
	int a, b;
	void *to;
} todo;
typedef struct noted {
	int mb;
	bool hits;
} noted;
typedef struct piece {        /* a graph, and what begins behind it; behind.begin NULL: nothing */
	cudaGraph_t captured; /* until it is made */
	cudaGraphExec_t graph;
	rt_cut behind;
} piece;
typedef struct section {
	int visits, kind;
	todo *before;
	noted *notes;
	piece *pieces;
	int nbefore, nnotes, first_note, npieces;
	bool captured, whole; /* all pieces are; and made */
} section;
enum { WATCHED = 2, MICRO = 0, STEP = 1 };

static section *sections, *current;
static int nsections;
static bool capturing, again, wanted, must, making;
static char refused[300]; /* why what is being captured will be no graph */
static const char *const of[] = { "forwards and backwards", "updates" };
static const char *spoiled[2]; /* why functions of microbatches, of steps, cannot be captured */

/* Numbers of the host that functions count in: where one is called once more they are what they were. */
static struct {
	int *n, before;
} *counted;
static int ncounted;

static bool off(void) { return rt_alone || rt_virtual || !wanted; }

void rt_graphs_open(const rt_options *o)
{
	const char *s = o->graphs ? o->graphs : "auto";

	if (strcmp(s, "auto") && strcmp(s, "on") && strcmp(s, "off"))
		rt_fail(RT_USAGE, "R001", "--cuda-graphs wants auto, on or off, not '%s'", s);
	wanted = strcmp(s, "off") != 0;
	must = !strcmp(s, "on");
}

/* ---- what a function does beside starting kernels ---- */

void rt_section_spoil(const char *why)
{
	if (current && current->visits == WATCHED && !making &&
		!spoiled[current->kind]) /* the first time memory is made */
		spoiled[current->kind] = why;
}

static void perform(const todo *t)
{
	switch (t->what) {
	case RT_TODO_INPUT: pd_input(t->a, t->b, t->to); break;
	case RT_TODO_RECEIVED: pd_wait_recv(t->a, t->b); break;
	case RT_TODO_SENT: pd_wait_send(t->a, t->b); break;
	}
}

bool rt_section_before(rt_todo what, int a, int b, void *to)
{
	section *s = current;

	if (!s || capturing || again)
		return s != NULL;
	s->before = realloc(s->before, (size_t)(s->nbefore + 1) * sizeof *s->before);
	if (!s->before)
		rt_fail(RT_MEMORY, "R501", "no memory for what comes before a graph");
	s->before[s->nbefore] = (todo){ what, a, b, to };
	current = NULL; /* it is no part of the graph */
	perform(&s->before[s->nbefore++]);
	current = s;
	return true;
}

void rt_section_note(int mb, bool hits)
{
	section *s = current;

	if (!s || !capturing)
		return;
	s->notes = realloc(s->notes, (size_t)(s->nnotes + 1) * sizeof *s->notes);
	if (!s->notes)
		rt_fail(RT_MEMORY, "R501", "no memory for what comes behind a graph");
	s->notes[s->nnotes++] = (noted){ mb, hits };
}

/* ---- numbers of the running step ---- */

bool pd_first_step(void)
{
	static int64_t first = -1;

	if (first < 0)
		first = rt_step;
	return rt_step == first;
}

enum { ROWS = 1024, NUMBERS = 4 * ROWS };

static struct {
	double (*at)[NUMBERS]; /* two in the host's memory */
	double *here;          /* on the device */
	double now[NUMBERS];
	struct {
		void (*make)(double *numbers);
		int first, n;
	} row[ROWS];
	int rows, used, turn;
	cudaEvent_t copied[2];
} late;

static void made(int row, double *to)
{
	making = true;
	late.row[row].make(to);
	making = false;
}

/* All rows as they are now; those on the device become the same. */
static void renew(void)
{
	double now[NUMBERS];
	const size_t bytes = (size_t)late.used * sizeof *now;

	for (int i = 0; i < late.rows; i++)
		made(i, &now[late.row[i].first]);
	if (!late.rows || !memcmp(now, late.now, bytes))
		return;
	memcpy(late.now, now, bytes);
	late.turn ^= 1;
	rt_until(late.copied[late.turn]);
	memcpy(late.at[late.turn], now, bytes);
	rt_copy_on(RT_COMPUTE, late.here, late.at[late.turn], bytes, false);
	rt_record_on(&late.copied[late.turn], RT_COMPUTE);
}

void rt_late_room(void)
{
	if (late.here || capturing)
		return;
	late.here = rt_device_memory(sizeof late.now, "numbers of the running step");
	late.at = rt_pinned(NULL, 2 * sizeof *late.at);
}

const double *pd_late(void (*make)(double *numbers), int n)
{
	double now[NUMBERS];
	int i = 0;

	while (i < late.rows && late.row[i].make != make)
		i++;
	if (i == late.rows) {
		rt_late_room();
		if (capturing && !rt_capture_refused("numbers of the running step", "a kernel takes new ones"))
			rt_fail(RT_ERROR, "R520",
				"%s: a kernel takes numbers of the step that it took in no step before",
				pd_device_name());
		if (late.rows == ROWS || late.used + n > NUMBERS)
			rt_fail(RT_ERROR, "R526", "more than %d kernels take numbers of the step", ROWS);
		late.row[late.rows].make = make;
		late.row[late.rows].n = n;
		late.row[late.rows++].first = late.used;
		for (int k = 0; k < n; k++)
			late.now[late.used++] = NAN; /* unlike what it will be */
	}
	const int first = late.row[i].first;

	if (!capturing) {
		made(i, now);
		if (memcmp(now, &late.now[first], (size_t)n * sizeof *now))
			renew();
	}
	return late.here + first;
}

static void count(double *to) { *to = pd_total_count(); }

void pd_set_count(float *to)
{
	if (rt_late)
		rt_gpu_set_count(to);
	else
		rt_set_late(to, pd_late(count, 1));
}

/* ---- what a function starts ---- */

bool rt_capture_refused(const char *what, const char *why)
{
	if (!capturing || must)
		return false;
	if (!*refused)
		snprintf(refused, sizeof refused, "%s: %s", what, why);
	return true;
}

static bool worked(cudaError_t e, const char *what)
{
	if (e == cudaSuccess)
		return true;
	(void)cudaGetLastError();
	if (!rt_capture_refused(what, cudaGetErrorString(e)))
		rt_gpu_check(e, what);
	return false;
}

static bool begin_piece(section *s)
{
	s->pieces = realloc(s->pieces, (size_t)(s->npieces + 1) * sizeof *s->pieces);
	if (!s->pieces)
		rt_fail(RT_MEMORY, "R501", "no memory for %d graphs", s->npieces + 1);
	s->pieces[s->npieces] = (piece){ 0 };
	return worked(cudaStreamBeginCapture(pd_stream(), cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
}

bool rt_gathers(void) { return true; }

bool rt_graphs_made(void)
{
	for (int k = 0; k < nsections; k++)
		if (sections[k].npieces)
			return true;
	return false;
}

bool rt_capturing(void) { return capturing; }

static void end_piece(section *s)
{
	cudaGraph_t g = NULL;

	if (worked(cudaStreamEndCapture(pd_stream(), &g), "cudaStreamEndCapture"))
		s->pieces[s->npieces++].captured = g;
}

/* False: one is refused. */
static bool make(section *s)
{
	for (int i = 0; i < s->npieces; i++) {
		piece *p = &s->pieces[i];
		const cudaError_t made = cudaGraphInstantiate(&p->graph, p->captured, 0);
		const cudaError_t e = made ? made : cudaGraphUpload(p->graph, pd_stream());

		rt_gpu_check(cudaGraphDestroy(p->captured), "cudaGraphDestroy");
		p->captured = NULL;
		if (e == cudaSuccess)
			continue;
		if (must)
			rt_gpu_check(e, "cudaGraphInstantiate");
		snprintf(refused, sizeof refused, "cudaGraphInstantiate: %s", cudaGetErrorString(e));
		return false;
	}
	return true;
}

static void start(const section *s)
{
	for (int i = 0; i < s->npieces; i++) {
		const piece *p = &s->pieces[i];

		rt_gpu_check(cudaGraphLaunch(p->graph, pd_stream()), "cudaGraphLaunch");
		if (p->behind.begin)
			p->behind.begin(&p->behind);
	}
}

/* From now on functions of its kind run as they are. */
static void give_up(const section *s)
{
	static char why[2][sizeof refused];

	(void)cudaGetLastError(); /* what a library left of its refusal */
	snprintf(why[s->kind], sizeof why[0], "%s", refused);
	spoiled[s->kind] = why[s->kind];
	if (rt_log >= RT_LOG_WARNING)
		fprintf(stderr, "R526 %s: %s: no CUDA graphs of %s, their kernels are started one by one: %s\n",
			rt_name(rt_program->rank), pd_device_name(), of[s->kind], refused);
}

bool rt_section_cut(const rt_cut *b)
{
	section *s = current;

	if (!capturing)
		return false;
	end_piece(s);
	const bool lost = *refused;

	if (!lost)
		s->pieces[s->npieces - 1].behind = *b;
	if (begin_piece(s))
		return true;
	capturing = false; /* what there is of it is started, the rest runs as it is */
	if (lost || !make(s))
		rt_fail(RT_ERROR, "R520",
			"%s: neither ends a capture nor does another begin (--cuda-graphs off runs without): %s",
			pd_device_name(), refused);
	again = true;
	start(s);
	rt_gpu_fetch(s->first_note);
	give_up(s);
	return true;
}

/* ---- sections ---- */

void pd_counted(int *n)
{
	counted = realloc(counted, (size_t)(ncounted + 1) * sizeof *counted);
	if (!counted)
		rt_fail(RT_MEMORY, "R501", "no memory for what functions count");
	counted[ncounted++].n = n;
}

static void prepare(section *s)
{
	renew();
	for (int i = 0; i < s->nbefore; i++)
		perform(&s->before[i]);
}

static void replay(section *s)
{
	if (rt_gpu_notes() != s->first_note && s->nnotes)
		rt_fail(RT_ERROR, "R526", "a graph notes its losses from place %d, others took %d", s->first_note,
			rt_gpu_notes());
	start(s);
	for (int i = 0; i < s->nnotes; i++)
		rt_gpu_noted(s->notes[i].mb, s->notes[i].hits);
	rt_gpu_fetch(s->first_note);
}

static void capture(section *s)
{
	s->first_note = rt_gpu_notes();
	for (int i = 0; i < ncounted; i++)
		counted[i].before = *counted[i].n;
	*refused = 0;
	capturing = true;
	current = s;
	if (begin_piece(s))
		return;
	capturing = false; /* what comes before was done, and nothing else */
	again = true;
	give_up(s);
}

bool pd_section(bool train, int k, int n, int mb)
{
	current = NULL;
	if (!train || off())
		return true;
	if (!sections)
		sections = rt_alloc((size_t)(nsections = n) * sizeof *sections);
	section *s = &sections[k];

	s->kind = mb < 0 ? STEP : MICRO;
	if (spoiled[s->kind] && must)
		rt_fail(RT_USAGE, "R526", "--cuda-graphs on: there is no graph of %s: %s", of[s->kind],
			spoiled[s->kind]);
	if (spoiled[s->kind])
		return true;
	if (s->whole) {
		prepare(s);
		replay(s);
		return false;
	}
	if (s->captured)
		return true;
	if (s->visits++ < WATCHED) {
		s->nbefore = 0;
		current = s;
		return true;
	}
	prepare(s);
	capture(s);
	return true;
}

bool pd_section_end(void)
{
	section *s = current;

	if (!capturing) {
		again = false;
		current = NULL;
		return false;
	}
	end_piece(s);
	capturing = false;
	s->captured = !*refused;
	if (*refused)
		give_up(s);
	for (int i = 0; i < ncounted; i++)
		*counted[i].n = counted[i].before;
	rt_gpu_unnote(s->first_note);
	again = true; /* what comes before it was done */
	return true;
}

void rt_graphs_between(void)
{
	for (int k = 0; k < nsections; k++) {
		section *s = &sections[k];

		if (!s->captured || s->whole || spoiled[s->kind])
			continue;
		rt_nccl_settle();
		s->whole = make(s);
		if (!s->whole)
			give_up(s);
	}
}

void rt_graphs_end(void)
{
	int graphs = 0;

	for (int k = 0; k < nsections; k++)
		graphs += sections[k].whole && !spoiled[sections[k].kind];
	if (wanted && sections && rt_log >= RT_LOG_DEBUG)
		printf("debug: %s has %d CUDA graphs\n", rt_name(rt_program->rank), graphs);
	for (int k = 0; k < 2 && wanted && sections && rt_log >= RT_LOG_DEBUG; k++)
		if (spoiled[k])
			printf("debug: %s has no CUDA graphs of %s: %s\n", rt_name(rt_program->rank), of[k],
				spoiled[k]);
}
