/* gpu_timed.c: which way products of matrices are made. For a form (extents, types, what is done at the end) cuBLASLt's heuristic names
 * several algorithms, and what is done at the end may be the library's or our kernels'. Before step 0 each way is run on the device and
 * timed, and the quickest is taken: by all ranks that make this form on such a device, for what replicas and members of a tensor group
 * compute alike must have the same bits. So the first of them times and the others are told. Rank 0 keeps all of it in a file of the build
 * folder, that a resumed run has the bits of the one before. A program of --reproducible times and reads nothing: its bits are to be those
 * of any other plan and run, and a time is another one each time. */
#include "gpu_rt.h"
#include <errno.h>
#include <stdlib.h>

enum {
	WAYS = 8,         /* algorithms that the heuristic is asked for, of a form with its end and without */
	ROUNDS = 4,       /* the least of them counts */
	RUNS = 20,        /* of one round at most */
	LONG = 100000,    /* ns that a round takes at least, if that many runs do */
	PATTERN = 1 << 14 /* bytes */
};

typedef struct task { /* what all know of each */
	char device[256], uuid[16];
	uint64_t version;
	int64_t seconds;
	int32_t forms;
} task;
typedef struct
	work { /* of a task: forms that are told by it, of these to be timed, of these a file had and the library refuses */
	int32_t leads, missing, refused;
} work;
typedef struct known {
	int32_t task, form;
	int64_t ns; /* 0: there was nothing to choose from; -1: there was no time left */
	rt_way way;
} known;
typedef struct list {
	known *v;
	int n;
} list;

static struct {
	int tasks, me, most; /* forms of a task at most */
	task *task;
	char (*form)[RT_FORM]; /* those of task q from q * most on */
	rt_product **mine;
	bool *missing;
	list kept, timed, all; /* of the file; by this task; by all tasks */
	char *scrap;
	size_t room;       /* of scrap */
	double begin, end; /* of timing */
	cudaEvent_t from, to;
	char path[4096], told[600], why[200];
} t;

const char *rt_products_told(void) { return t.told; }

/* ---- what all tasks know ---- */

static const char *form_of(int q, int i) { return t.form[(ptrdiff_t)q * t.most + i]; }

/* The first task that makes this form on such a device by such a library, and which of its forms it is; -1: none. */
static int leader(const char *form, const char *device, uint64_t version, int *which)
{
	for (int q = 0; q < t.tasks; q++) {
		if (t.task[q].version != version || strcmp(t.task[q].device, device))
			continue;
		for (int i = 0; i < t.task[q].forms; i++)
			if (!strcmp(form_of(q, i), form)) {
				*which = i;
				return q;
			}
	}
	return -1;
}

static int leader_of(int i, int *which)
{
	return leader(form_of(t.me, i), t.task[t.me].device, t.task[t.me].version, which);
}

static bool leads(int i)
{
	int which = -1;

	return leader_of(i, &which) == t.me && which == i;
}

/* The lists of all tasks, one behind the other. */
static list together(const list *mine)
{
	int32_t n = mine->n, *each = rt_alloc((size_t)t.tasks * sizeof *each), most = 0;
	list all = { 0 };

	rt_gather_tasks(&n, each, sizeof n);
	for (int q = 0; q < t.tasks; q++)
		most = each[q] > most ? each[q] : most;
	known *own = rt_alloc((size_t)most * sizeof *own), *told = rt_alloc((size_t)(most * t.tasks) * sizeof *told);

	memcpy(own, mine->v, (size_t)n * sizeof *own);
	if (most)
		rt_gather_tasks(own, told, (size_t)most * sizeof *own);
	for (int q = 0; q < t.tasks; q++) {
		memmove(&told[all.n], &told[(ptrdiff_t)q * most], (size_t)each[q] * sizeof *told);
		all.n += each[q];
	}
	all.v = told;
	free(own);
	free(each);
	return all;
}

static const known *in_list(const list *l, int q, int i, bool apart)
{
	for (int k = 0; k < l->n; k++)
		if (l->v[k].task == q && l->v[k].form == i && l->v[k].way.apart == apart)
			return &l->v[k];
	return NULL;
}

/* Of this task's form i, with its end or bare: as timed now, else as the file has it; NULL: neither. */
static const known *find(int i, bool apart)
{
	int which = i;
	const int q = leader_of(i, &which);
	const bool now = in_list(&t.all, q, which, false) || in_list(&t.all, q, which, true);

	return in_list(now ? &t.all : &t.kept, q, which, apart);
}

/* Who has which forms on which device. false: nobody has any, or they are not to be timed. */
static bool meet(const rt_options *o)
{
	task me = { .version = rt_product_version(), .seconds = o->time_products };
	int n = 0;

	if (!rt_program->server) {
		snprintf(me.device, sizeof me.device, "%s", rt_gpu_kind());
		memcpy(me.uuid, rt_gpu_uuid(), sizeof me.uuid);
	}
	for (char *c = me.device; *c; c++)
		*c = *c < ' ' || *c > '~' ? '?' : *c;
	for (rt_product *p = NULL; (p = rt_product_next(p));)
		me.forms++;
	t.tasks = rt_tasks();
	t.me = rt_task_of(rt_program->rank);
	t.task = rt_alloc((size_t)t.tasks * sizeof *t.task);
	rt_gather_tasks(&me, t.task, sizeof me);
	for (int q = 0; q < t.tasks; q++)
		t.most = t.task[q].forms > t.most ? t.task[q].forms : t.most;
	if (!t.most || !t.task->seconds)
		return false;
	char(*own)[RT_FORM] = rt_alloc((size_t)t.most * sizeof *own);

	t.form = rt_alloc((size_t)(t.tasks * t.most) * sizeof *t.form);
	t.mine = rt_alloc((size_t)t.most * sizeof(rt_product *));
	t.missing = rt_alloc((size_t)t.most * sizeof *t.missing);
	for (rt_product *p = NULL; (p = rt_product_next(p)); n++) {
		t.mine[n] = p;
		rt_product_form(p, own[n]);
	}
	rt_gather_tasks(own, t.form, (size_t)t.most * sizeof *own);
	free(own);
	return true;
}

/* ---- the file ---- */

/* Whether a line is of another version than a task has on such a device. */
static bool stale(const rt_timed *line)
{
	for (int q = 0; q < t.tasks; q++)
		if (!strcmp(t.task[q].device, line->device) && t.task[q].version != line->version)
			return true;
	return false;
}

static bool wanted(const rt_timed *line)
{
	for (int q = 0; q < t.tasks; q++)
		for (int i = 0; i < t.task[q].forms; i++)
			if (!strcmp(form_of(q, i), line->form))
				return true;
	return false;
}

/* Of rank 0: the lines of the file, and what of them is of use. */
static int read_file(rt_timed **lines, list *of_use)
{
	const int n = rt_timed_read(t.path, lines, t.why, sizeof t.why);

	of_use->v = rt_alloc((size_t)n * sizeof *of_use->v);
	for (int k = 0; k < n; k++) {
		const rt_timed *l = &(*lines)[k];
		int which = 0;
		const int q = leader(l->form, l->device, l->version, &which);

		if (q >= 0)
			of_use->v[of_use->n++] = (known){ q, which, l->ns, l->way };
		else if (!*t.why && wanted(l))
			snprintf(t.why, sizeof t.why, "it is of %.80s and cuBLASLt %llu, here are %.60s and %llu",
				l->device, (unsigned long long)l->version, t.task->device,
				(unsigned long long)t.task->version);
	}
	return n;
}

/* Of rank 0: what was timed now, then the lines that still hold. false: errno says why it could not. */
static bool write_file(const rt_timed *lines, int n)
{
	rt_timed *all = rt_alloc((size_t)(t.all.n + n) * sizeof *all);
	int count = 0;

	for (int k = 0; k < t.all.n; k++) {
		const known *x = &t.all.v[k];
		rt_timed *l = &all[count++];

		*l = (rt_timed){ .version = t.task[x->task].version, .ns = x->ns < 0 ? 0 : x->ns, .way = x->way };
		memcpy(l->device, t.task[x->task].device, sizeof l->device);
		memcpy(l->form, form_of(x->task, x->form), sizeof l->form);
	}
	for (int k = 0; k < n; k++) {
		bool anew = stale(&lines[k]);

		for (int i = 0; i < t.all.n; i++)
			anew |= lines[k].version == all[i].version && !strcmp(lines[k].form, all[i].form) &&
			        !strcmp(lines[k].device, all[i].device);
		if (!anew)
			all[count++] = lines[k];
	}
	const bool good = rt_timed_write(t.path, all, count);

	free(all);
	return good;
}

/* ---- timing ---- */

/* Numbers from -1 to 1 (of 8 bits: 2) in all of the memory: a multiplier that gets zeros takes less power, and time. */
static void fill(pd_dtype type, size_t bytes)
{
	static uint16_t half[PATTERN / 2];
	static float wide[PATTERN / 4];
	uint32_t x = 1;
	size_t done = bytes < PATTERN ? bytes : PATTERN;

	for (int i = 0; i < PATTERN / 4; i++) {
		x = x * 1664525 + 1013904223;
		wide[i] = (float)(x >> 8) / (1 << 23) - 1;
	}
	for (int i = 0; i < PATTERN / 2; i++) {
		x = x * 1664525 + 1013904223; /* sign, a fraction, exponents of 1/16 to 1/2 */
		half[i] = (uint16_t)(type == PD_F16    ? (x >> 16 & 0x83ff) | (11 + (x >> 14 & 3)) << 10
				     : type == PD_BF16 ? (x >> 16 & 0x807f) | (123 + (x >> 14 & 3)) << 7
						       : x >> 16 & 0xbfbf); /* two of 8 bits */
	}
	rt_gpu_put(t.scrap, type == PD_F32 ? (const void *)wide : half, done);
	for (; done < bytes; done += done < bytes - done ? done : bytes - done)
		pd_copy(t.scrap + done, t.scrap, done < bytes - done ? done : bytes - done);
	rt_gpu_wait();
}

/* Nanoseconds of each of n runs; 0: it is refused. */
static int64_t round_of(rt_product *p, int n)
{
	float ms = 0;

	rt_gpu_check(cudaEventRecord(t.from, pd_stream()), "cudaEventRecord");
	for (int k = 0; k < n; k++)
		if (!rt_product_once(p, t.scrap))
			return 0;
	rt_gpu_check(cudaEventRecord(t.to, pd_stream()), "cudaEventRecord");
	rt_until(t.to);
	rt_gpu_check(cudaEventElapsedTime(&ms, t.from, t.to), "cudaEventElapsedTime");
	const int64_t ns = (int64_t)(1e6 * (double)ms / n + 0.5);

	return ns ? ns : 1;
}

/* Nanoseconds of a run, the least of several rounds; 0: it is refused. One that takes twice `best` (0: there is none) is not run again. */
static int64_t time_of(rt_product *p, const rt_way *w, int64_t best)
{
	if (!rt_product_try(p, w) || !rt_product_once(p, t.scrap)) /* which loads it */
		return 0;
	int64_t least = round_of(p, 1);
	const int n = least < LONG / RUNS ? RUNS : least < LONG ? (int)(LONG / least) : 1;

	for (int k = 0; k < ROUNDS && least && (!best || least < 2 * best) && rt_now() < t.end; k++) {
		const int64_t ns = round_of(p, n);

		least = ns < least ? ns : least;
	}
	return least;
}

/* The quickest way of form i with its end, and the quickest without. */
static void time_form(int i)
{
	rt_product *p = t.mine[i];
	const rt_way now = rt_product_now(p);
	rt_way way[2 * WAYS];
	int n = rt_product_ways(p, false, way, WAYS);
	known best[2] = { { 0 }, { 0 } };

	n += rt_product_ways(p, true, way + n, WAYS);
	const bool worth = n > 1 && rt_product_scrap(p) <= t.room;

	if (worth && rt_now() < t.end)
		fill(rt_product_type(p), rt_product_scrap(p));
	for (int k = 0; worth && k < n && rt_now() < t.end; k++) {
		known *b = &best[way[k].apart];
		const int64_t other = best[!way[k].apart].ns;
		const int64_t ns = time_of(p, &way[k], b->ns && (!other || b->ns < other) ? b->ns : other);

		if (ns && (!b->ns || ns < b->ns))
			*b = (known){ t.me, i, ns, way[k] };
	}
	const bool over = worth && rt_now() >= t.end;

	for (int apart = 0; apart < 2 && !over; apart++)
		if (best[apart].ns)
			t.timed.v[t.timed.n++] = best[apart];
	if (over || (!best[0].ns && !best[1].ns))
		t.timed.v[t.timed.n++] = (known){ t.me, i, over ? -1 : 0, now };
}

/* All that this task is to time. Memory is asked for as rt_first_runs does, and given back. */
static void time_forms(const rt_options *o, int missing)
{
	const double most = (double)t.task->seconds < o->timeout / 4 ? (double)t.task->seconds : o->timeout / 4;
	size_t unused = 0, total = 0;
	void *scrap = NULL;
	double last = t.begin = rt_now();

	t.end = t.begin + most;
	rt_gpu_check(cudaMemGetInfo(&unused, &total), "cudaMemGetInfo");
	for (int i = 0; i < t.task[t.me].forms; i++) {
		const size_t bytes = rt_product_scrap(t.mine[i]);
		t.room = t.missing[i] && bytes > t.room && bytes <= unused / 8 * 7 ? bytes : t.room;
	}
	if (t.room && cudaMalloc(&scrap, t.room) != cudaSuccess) {
		rt_refusal_taken();
		t.room = 0;
	}
	t.scrap = scrap;
	rt_gpu_check(cudaEventCreateWithFlags(&t.from, 0), "cudaEventCreate");
	rt_gpu_check(cudaEventCreateWithFlags(&t.to, 0), "cudaEventCreate");
	for (int i = 0, n = 0; i < t.task[t.me].forms; i++) {
		if (!t.missing[i])
			continue;
		time_form(i);
		n++;
		if (rt_leads(rt_program) && rt_log >= RT_LOG_NOTE && rt_now() - last > 2) {
			last = rt_now();
			printf("products: %d of %d forms timed in %.0f s, at most %.0f s\n", n, missing, last - t.begin,
				most);
			fflush(stdout);
		}
	}
	rt_gpu_wait();
	rt_device_release(scrap);
}

/* Forms of which the file has nothing that the library takes. */
static work look(void)
{
	work w = { 0 };

	for (int i = 0; i < t.task[t.me].forms; i++) {
		const known *k[2] = { find(i, false), find(i, true) };
		bool good = k[0] || k[1];

		if (!leads(i))
			continue;
		for (int apart = 0; apart < 2; apart++)
			good &= !k[apart] || rt_product_try(t.mine[i], &k[apart]->way);
		w.leads++;
		w.missing += t.missing[i] = !good;
		w.refused += (k[0] || k[1]) && !good;
	}
	return w;
}

/* Those that share a GPU time one after the other. */
static void time_in_turn(const rt_options *o, const work *each)
{
	char token = 0, *all = rt_alloc((size_t)t.tasks);
	int mine = -1, turns = 0;

	for (int q = 0; q < t.tasks; q++) {
		int before = 0;

		for (int r = 0; r < q; r++)
			before += each[r].missing && !memcmp(t.task[r].uuid, t.task[q].uuid, sizeof t.task->uuid);
		if (!each[q].missing)
			continue;
		mine = q == t.me ? before : mine;
		turns = before >= turns ? before + 1 : turns;
	}
	for (int k = 0; k < turns; k++) {
		if (k == mine)
			time_forms(o, each[t.me].missing);
		rt_gather_tasks(&token, all, 1); /* they wait */
	}
	free(all);
}

/* ---- what is taken ---- */

/* Whether what keeps bits of a Relu, and what reads them, is made bare: all of it or nothing, for bits have another order there. */
static bool bits_apart(void)
{
	double with = 0, bare = 0;
	bool must = false, may = true;

	for (int i = 0; i < t.task[t.me].forms; i++) {
		const int uses = rt_product_bits(t.mine[i]);
		const known *a = find(i, false), *b = find(i, true);

		if (!uses)
			continue;
		must |= !a;
		may &= a && a->ns > 0 && b && b->ns > 0;
		with += a ? (double)uses * (double)a->ns : 0;
		bare += b ? (double)uses * (double)b->ns : 0;
	}
	return must || (may && bare < with);
}

static void take_all(void)
{
	const bool bits = bits_apart();

	for (int i = 0; i < t.task[t.me].forms; i++) {
		const known *a = find(i, false), *b = find(i, true);
		const bool quicker = !a || (b && b->ns > 0 && a->ns > 0 && b->ns < a->ns);
		const known *k = (rt_product_bits(t.mine[i]) ? bits : quicker) ? b : a;
		rt_way first;

		if (k)
			rt_product_take(t.mine[i], &k->way);
		else if (rt_product_ways(t.mine[i], true, &first, 1))
			rt_product_take(t.mine[i], &first);
		if (k && k->ns > 0 && rt_log >= RT_LOG_DEBUG)
			printf("debug: product %s takes %.3f us%s\n", form_of(t.me, i), (double)k->ns / 1e3,
				k->way.apart ? ", bare" : "");
	}
}

/* Of rank 0: what came of it, for the lines at the start. */
static void tell(const work *each, bool kept, const char *error)
{
	int forms = 0, missing = 0, refused = 0, late = 0;
	char more[120] = "";

	for (int q = 0; q < t.tasks; q++) {
		forms += each[q].leads;
		missing += each[q].missing;
		refused += each[q].refused;
	}
	for (int k = 0; k < t.all.n; k++)
		late += t.all.v[k].ns < 0;
	if (*t.why && missing)
		printf("products: %s is not taken: %s\n", t.path, t.why);
	else if (refused)
		printf("products: cuBLASLt refuses %d forms as %s has them\n", refused, t.path);
	if (late)
		snprintf(more, sizeof more, ", %d of them not: the time was over (--time-products)", late);
	if (!missing)
		snprintf(t.told, sizeof t.told, "%d forms as %.400s has them", forms, t.path);
	else
		snprintf(t.told, sizeof t.told, "%d of %d forms timed%s; %s %.300s%s%s", missing, forms, more,
			kept ? "kept in" : "not kept in", t.path, error ? ": " : "", error ? error : "");
}

void rt_products_time(const rt_options *o)
{
	list of_use = { 0 };
	rt_timed *lines = NULL;
	int n = 0;

	if (rt_program->reproducible || !meet(o))
		return;
	snprintf(t.path, sizeof t.path, "%s", rt_in_root(o, "products.txt"));
	if (rt_leads(rt_program))
		n = read_file(&lines, &of_use);
	t.kept = together(&of_use);
	t.timed.v = rt_alloc(2 * (size_t)t.most * sizeof *t.timed.v);
	const work mine = look();
	work *each = rt_alloc((size_t)t.tasks * sizeof *each);

	rt_gather_tasks(&mine, each, sizeof mine);
	time_in_turn(o, each);
	t.all = together(&t.timed);
	take_all();
	if (rt_leads(rt_program)) {
		const bool kept = t.all.n && write_file(lines, n);

		tell(each, kept, kept || !t.all.n ? NULL : strerror(errno));
	}
	free(of_use.v);
	free(lines);
	free(each);
}
