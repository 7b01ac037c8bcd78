/* pdcc doctor: what programs need and whether it is here; the machines of a cluster file; with --measure how fast messages
 * are over each kind of its links, and what sums take beside them, by a program of two devices that uses the runtime as emitted
 * programs do: three runs, of which each size's median counts. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "ir/base/human.h"
#include "codegen/folder/emit.h"
#include "runtime/pd.h"
#include "frontend/settings/cluster.h"
#include "doctor.h"
#include "frontend/driver/compile/tools.h"

/* ---- tools ---- */

typedef struct Tool {
	const char *what,
		*ask;        /* ask: a command whose first line names the version; it fails where the tool is missing */
	const char *without; /* what cannot be done without it; NULL: nothing that pdcc needs */
	const char *package; /* of Debian, that has it */
} Tool;

#define HEADER(h) "printf '#include <" h ">\\n' | ${CC:-cc} -E - 2>/dev/null"
static const Tool tools[] = {
	{ "C compiler", "${CC:-cc} --version", "compile emitted programs", "gcc libc6-dev" },
	{ "make", "make --version", "build emitted programs", "make" },
	{ "MPI compiler", "mpicc --version", "compile programs for several devices", "libopenmpi-dev" },
	{ "MPI launcher", "mpirun --version", "start programs of several devices, on GPUs too", "openmpi-bin" },
	{ "oneDNN",
		"v=$(" HEADER(
			"dnnl_version.h") " -dM | awk '/define DNNL_VERSION_(MAJOR|MINOR|PATCH) / {v[$2] = $3} END "
					  "{if (NR) print v[\"DNNL_VERSION_MAJOR\"] \".\" v[\"DNNL_VERSION_MINOR\"] \".\" v[\"DNNL_VERSION_PATCH\"]}'); "
					  "[ -n \"$v\" ] && echo \"$v\"",
		"compile emitted programs", "libdnnl-dev" },
	{ "CUDA", "nvcc --version | tail -n 2", NULL, NULL },
	{ "NVIDIA driver", "nvidia-smi --query-gpu=name --format=csv,noheader", NULL, NULL },
	{ "NCCL", HEADER("nccl.h") " >/dev/null && echo found", NULL, NULL },
	{ "ssh", "command -v ssh", NULL, NULL },
};

/* How many that are needed are missing. */
static int check_tools(const Compile *c, bool *gpu)
{
	int missing = 0;

	for (size_t i = 0; i < sizeof tools / sizeof *tools; i++) {
		const char *said = first_line(c->a, tools[i].ask);
		const bool found = said && *said;
		printf("%-14s %s\n", tools[i].what, found ? said : "not found");
		*gpu |= found && !strcmp(tools[i].what, "NVIDIA driver");
		if (found || !tools[i].without)
			continue;
		missing++;
		diag_error(c->d, NOLOC, 801, "no %s was found%s; without it nobody can %s; Debian: apt install %s",
			tools[i].what, strncmp(tools[i].ask, "${CC", 4) ? "" : " ($CC or cc)", tools[i].without,
			tools[i].package);
	}
	return missing;
}

/* ---- links ---- */

enum { POINTS = 64, TIMES = 3 }; /* TIMES: runs of the program, of which the median counts */
typedef struct Fit {
	double latency, bandwidth, worst;
	int n, of;
} Fit; /* seconds, bytes/s; largest relative error */
typedef struct Points {
	double size[POINTS], t[POINTS];
	int n;
} Points;
typedef struct SumPoints { /* of each run: what goes to everyone, the ring; seconds per byte that is added */
	double bytes[2], t[2][TIMES], add[TIMES];
	int n[3];
} SumPoints;

/* t = latency + n / bandwidth, least squares of the relative errors; gives the point that fits worst, -1: no bandwidth. */
static int fit_line(const Points *p, Fit *to)
{
	double w = 0, x = 0, y = 0, xx = 0, xy = 0;
	int worst = 0;

	for (int i = 0; i < p->n; i++) {
		const double k = 1 / (p->t[i] * p->t[i]);
		w += k;
		x += k * p->size[i];
		y += k * p->t[i];
		xx += k * p->size[i] * p->size[i];
		xy += k * p->size[i] * p->t[i];
	}
	const double slope = p->n > 2 ? (w * xy - x * y) / (w * xx - x * x) : 0;
	if (!(slope > 0))
		return -1;
	*to = (Fit){ fmax((y - slope * x) / w, 1e-9), 1 / slope, 0, p->n, to->of };
	for (int i = 0; i < p->n; i++) {
		const double off = fabs((to->latency + p->size[i] * slope) / p->t[i] - 1);
		worst = off > to->worst ? i : worst;
		to->worst = fmax(to->worst, off);
	}
	return worst;
}

/* Up to a third of the points may be off by more than AWAY: somebody else used the machine just then. */
static bool fit_most(Points *p, Fit *to)
{
	static const double AWAY = 0.3;

	to->of = p->n;
	for (int spare = p->n / 3;; spare--) {
		const int worst = fit_line(p, to);
		if (worst < 0 && !spare)
			return false;
		if (worst >= 0 && (to->worst <= AWAY || !spare))
			return true;
		const int drop = worst < 0 ? 0 : worst;
		p->n--;
		p->size[drop] = p->size[p->n];
		p->t[drop] = p->t[p->n];
	}
}

static int by_time(const void *a, const void *b)
{
	const double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static void sum_line(const char *line, SumPoints *s)
{
	double bytes, t;

	if (sscanf(line, "sum %lf %lf", &bytes, &t) == 2) {
		const int k = s->n[0] && bytes > s->bytes[0];
		s->bytes[k] = bytes;
		if (s->n[k] < TIMES)
			s->t[k][s->n[k]++] = t;
	} else if (sscanf(line, "add %lf", &t) == 1 && s->n[2] < TIMES) {
		s->add[s->n[2]++] = t;
	}
}

/* Two members: a small sum takes alpha + n (beta + gamma) + S, one by the ring 2 alpha + n beta + n gamma / 2 + S; of alpha the link
 * has its latency. The most of all pairs counts. */
static void fit_sums(SumPoints *s, const Fit *link, SumCost *to)
{
	const double beta = 1 / link->bandwidth;

	if (s->n[0] < TIMES || s->n[1] < TIMES || s->n[2] < TIMES)
		return;
	for (int k = 0; k < 2; k++)
		qsort(s->t[k], TIMES, sizeof *s->t[k], by_time);
	qsort(s->add, TIMES, sizeof *s->add, by_time);
	const double gamma = s->add[TIMES / 2],
		     small = s->t[0][TIMES / 2] - s->bytes[0] * (beta + gamma) - link->latency;
	const double ring = s->t[1][TIMES / 2] - s->bytes[1] * (beta + gamma / 2) - 2 * link->latency;
	const double message = fmax(fmin(ring - small, small), 0);

	to->message = fmax(to->message, message);
	to->start = fmax(to->start, fmax(small - message, 0));
	to->add = to->said ? fmin(to->add, 1 / gamma) : 1 / gamma;
	to->said = true;
}

/* What TIMES runs wrote, one behind the other: the median of each size. */
static bool fit_file(FILE *f, Fit *to, SumPoints *sums)
{
	Points all = { .n = 0 }, p = { .n = 0 };
	char line[128];

	while (fgets(line, sizeof line, f)) {
		if (all.n < POINTS && sscanf(line, "%lf %lf", &all.size[all.n], &all.t[all.n]) == 2)
			all.n++;
		sum_line(line, sums);
	}
	const int sizes = all.n / TIMES;
	for (int i = 0; i < sizes; i++) {
		double t[TIMES];
		for (int k = 0; k < TIMES; k++)
			t[k] = all.t[i + k * sizes];
		qsort(t, TIMES, sizeof *t, by_time);
		p.size[p.n] = all.size[i];
		p.t[p.n] = t[TIMES / 2];
		p.n += p.t[p.n] > 0;
	}
	return fit_most(&p, to);
}

/* *ok: times grow with the size, which those of a busy machine need not. False after a diagnostic. */
static bool measure_once(const Compile *c, const char *dir, const char *where, Fit *to, SumCost *cost, bool *ok)
{
	SumPoints sums = { .n = { 0 } };

	if (!tool_run(c->d, "the ping-pong",
		    arena_printf(c->a,
			    "cd '%s' && flags=; mpirun --version | grep -q 'Open MPI' && { "
			    "flags='--oversubscribe --bind-to none'; [ \"$(id -u)\" = 0 ] && flags=\"$flags --allow-run-as-root\"; }; "
			    "rm -f points.txt; for i in %.*s; do mpirun $flags %s >>points.txt 2>err.txt || { tail -n 5 err.txt >&2; exit 1; }; done",
			    dir, 2 * TIMES - 1, "1 2 3 4 5 6 7 8 9", where)))
		return false;
	FILE *f = fopen(arena_printf(c->a, "%s/points.txt", dir), "r");
	*ok = f && fit_file(f, to, &sums);
	if (f)
		fclose(f);
	if (*ok)
		fit_sums(&sums, to, cost);
	return true;
}

static bool measure_pair(const Compile *c, const char *dir, const char *where, Fit *to, SumCost *cost)
{
	bool ok = false;

	for (int tries = 0; !ok && tries < 3; tries++) {
		*to = (Fit){ 0 };
		if (!measure_once(c, dir, where, to, cost, &ok))
			return false;
	}
	return ok || diag_error(c->d, NOLOC, 803,
			     "the ping-pong gave no times that grow with the size, three times: is the machine busy?");
}

/* The link between two devices, once per line of the cluster file. */
static bool measure_link(const Compile *c, const char *dir, int i, int j, SumCost *cost)
{
	const Cluster *k = &c->cluster;
	const Host *a = &k->host[k->device[i].host], *b = &k->host[k->device[j].host];
	const Link l = cluster_link(k, i, j);
	const char *where = "-np 2 ./pingpong --quiet --out run";
	Fit fit = { 0 };

	if (!k->local && (!doctor_plain(doctor_address(a)) || !doctor_plain(doctor_address(b))))
		return diag_error(c->d, FILELOC(k->file), 705, "'%s' is no name of a host that mpirun could be given",
			doctor_address(a));
	if (!k->local)
		where = arena_printf(c->a,
			"-np 1 -host %s:2 ./pingpong --quiet --out run : -np 1 -host %s:2 ./pingpong --quiet --out run",
			doctor_address(a), doctor_address(b));
	if (!measure_pair(c, dir, where, &fit, cost))
		return false;
	const char *scope = a == b                    ? "within: node"
	                    : l.scope == LINK_BETWEEN ? arena_printf(c->a, "between: [%s, %s]", a->name, b->name)
	                                              : "default: true";
	printf("  - {%s, kind: %s, bandwidth: %s GB/s, latency: %s us}    # fits %d of %d sizes within %.0f %%; the file %s %s GB/s, "
	       "%s us\n",
		scope, l.kind ? l.kind : "link", number_text(c->a, fit.bandwidth / 1e9, 4),
		number_text(c->a, fit.latency * 1e6, 4), fit.n, fit.of, 100 * fit.worst,
		cluster_link_line(k, i, j) < k->nlink ? "says" : "leaves open:",
		number_text(c->a, l.bandwidth / 1e9, 4), number_text(c->a, l.latency * 1e6, 4));
	return true;
}

static bool measure_links(const Compile *c, const char *dir)
{
	const Cluster *k = &c->cluster;
	bool *done = NEWN(c->a, bool, k->nlink + 2);
	SumCost cost = { .said = false };

	memset(done, 0, (size_t)(k->nlink + 2) * sizeof *done);
	if (!codegen_pingpong(dir, c->d) ||
		!tool_run(c->d, "compiling the ping-pong",
			arena_printf(c->a,
				"cd '%s' && mpicc -std=c11 -O2 -fopenmp -Iruntime -o pingpong pingpong.c runtime/*.c -ldnnl -lm -lpthread 2>err.txt || "
				"{ tail -n 20 err.txt >&2; exit 1; }",
				dir)))
		return false;
	printf("links:\n");
	for (int i = 0; i < k->ndevice; i++)
		for (int j = i + 1; j < k->ndevice; j++) {
			const int line = cluster_link_line(k, i, j);
			if (done[line])
				continue;
			done[line] = true;
			if (!measure_link(c, dir, i, j, &cost))
				return false;
		}
	if (cost.said) /* sums of programs for GPUs are not what a CPU measures */
		printf("sums:\n  cpu: {message: %s us, start: %s us, add: %s GB/s}    # beside the links, the most of all pairs\n",
			number_text(c->a, cost.message * 1e6, 4), number_text(c->a, cost.start * 1e6, 4),
			number_text(c->a, cost.add / 1e9, 4));
	return true;
}

static bool measure(const Compile *c)
{
	const char *tmp = getenv("TMPDIR");
	char *dir = arena_printf(c->a, "%s/pdcc-doctor-XXXXXX", tmp && *tmp ? tmp : "/tmp");

	if (c->cluster.ndevice < 2) {
		diag_note(c->d, FILELOC(c->cluster.file), "one device has no links");
		return true;
	}
	if (!mkdtemp(dir))
		return diag_error(c->d, NOLOC, 8, "cannot make a temporary folder: %s", strerror(errno));
	const bool ok = measure_links(c, dir);
	if (!c->o->keep)
		tool_run(c->d, "cleaning", arena_printf(c->a, "rm -rf '%s'", dir));
	return ok;
}

int doctor_main(Compile *c)
{
	bool gpu = false;
	const int missing = check_tools(c, &gpu);

	doctor_machine(c, gpu);
	if (c->o->cluster || c->o->measure) {
		if (!cluster_read(c->a, c->o->cluster ? c->o->cluster : "local:2", &c->cluster, c->d))
			return EXIT_INPUT;
		doctor_hosts(c);
	}
	fflush(stdout);
	if (missing)
		return EXIT_NO_TOOL;
	if (c->d->errors)
		return EXIT_INPUT;
	return !c->o->measure || measure(c) ? 0 : EXIT_INPUT;
}
