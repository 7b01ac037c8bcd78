/* Lists of machines that other launchers read, as clusters: Parallax's resource_info, host files of MPI, Horovod and
 * DeepSpeed, host lists on the command line, torchrun's counts, and what Slurm says in the environment. They name hosts
 * and slots; links stay those built in. */
#include "hosts.h"
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "ir/base/buf.h"
#include "yaml.h"

typedef struct List {
	Arena *a;
	Cluster *c;
	Diag *d;
	int capdev, caphost, line;
	bool cuda, ok;
} List;

enum { DEVICES_MOST = 65536 };

static bool fault(List *l, const char *fmt, const char *what)
{
	Loc at = l->line ? TEXTLOC(l->c->file, l->line, 1) : NOLOC;
	const char *text = arena_printf(l->a, "%s: '%s'", fmt, what);

	l->ok = false;
	return diag_error(l->d, at, 106, "%s", text);
}

static bool host_add(List *l, const char *name)
{
	Cluster *c = l->c;

	for (int i = 0; i < c->nhost; i++)
		if (strcmp(c->host[i].name, name) == 0)
			return fault(l, "the host is there twice", name);
	PUSH(l->a, c->host, c->nhost, l->caphost) =
		(Host){ .name = name, .address = name, .worker = true, .server = true };
	return true;
}

static bool device_add(List *l, int index)
{
	Cluster *c = l->c;

	if (c->ndevice == DEVICES_MOST)
		return fault(l, "more than 65536 devices", c->host[c->nhost - 1].name);
	PUSH(l->a, c->device, c->ndevice, l->capdev) =
		(Device){ .host = c->nhost - 1, .index = index, .cuda = l->cuda };
	return true;
}

/* A number from lo to DEVICES_MOST at *s, behind which *s points then; -1: none. */
static int number(const char **s, int lo)
{
	char *end;
	long n = isdigit((unsigned char)**s) ? strtol(*s, &end, 10) : -1;

	if (n < lo || n > DEVICES_MOST)
		return -1;
	*s = end;
	return (int)n;
}

static bool add_slots(List *l, const char *name, int n)
{
	if (!host_add(l, name))
		return false;
	for (int i = 0; i < n; i++)
		if (!device_add(l, i))
			return false;
	return true;
}

/* ---- one line of a file ---- */

/* `10.0.0.1: 0,1,2`; no numbers: one device. */
static bool resource_line(List *l, const char *s)
{
	const char *colon = strchr(s, ':');
	int n = 0;

	if (!host_add(l, arena_strn(l->a, s, (size_t)(colon - s))))
		return false;
	for (s = colon + 1; *s; n++) {
		s += strspn(s, " \t,");
		if (!*s)
			break;
		const int id = number(&s, 0);
		if (id < 0 || (*s && !strchr(" \t,", *s)))
			return fault(l, "a list of device numbers, as in 0,1,2, is expected", s);
		if (!device_add(l, id))
			return false;
	}
	return n || device_add(l, 0);
}

/* `host slots=4 max_slots=8`; no slots: one. */
static bool host_line(List *l, const char *s)
{
	const size_t n = strcspn(s, " \t");
	const char *name = arena_strn(l->a, s, n);
	int slots = 1;

	for (s += n; *s;) {
		s += strspn(s, " \t");
		if (strncmp(s, "slots=", 6) == 0) {
			s += 6;
			if ((slots = number(&s, 1)) < 0)
				return fault(l, "slots wants a number from 1", s);
		} else if (strncmp(s, "max_slots=", 10) == 0 || strncmp(s, "max-slots=", 10) == 0) {
			s += strcspn(s, " \t");
			diag_note(l->d, TEXTLOC(l->c->file, l->line, 1),
				"max_slots says nothing about devices and is left out");
		} else if (*s) {
			return fault(l, "a line is HOST or HOST slots=N; found", s);
		}
	}
	return add_slots(l, name, slots);
}

static const char *trimmed(Arena *a, const char *s, size_t n)
{
	const char *hash = memchr(s, '#', n);

	n = hash ? (size_t)(hash - s) : n;
	while (n && isspace((unsigned char)*s))
		s++, n--;
	while (n && isspace((unsigned char)s[n - 1]))
		n--;
	return arena_strn(a, s, n);
}

static bool each_line(List *l, const char *text, bool (*one)(List *, const char *))
{
	bool ok = true;

	for (l->line = 1; *text && ok; l->line++) {
		const size_t n = strcspn(text, "\n");
		const char *s = trimmed(l->a, text, n);

		ok = !*s || one(l, s);
		text += n + (text[n] == '\n');
	}
	l->line = 0;
	return ok;
}

/* ---- which kind ---- */

/* Each line that says something: `word` followed by what? */
static bool all_lines(Arena *a, const char *text, bool (*like)(const char *))
{
	int seen = 0;

	while (*text) {
		const size_t n = strcspn(text, "\n");
		const char *s = trimmed(a, text, n);

		if (*s && !like(s))
			return false;
		seen += *s != 0;
		text += n + (text[n] == '\n');
	}
	return seen > 0;
}

static bool like_resource(const char *s)
{
	const size_t n = strcspn(s, ": \t");

	return n && s[n] == ':' && strspn(s + n + 1, "0123456789, \t") == strlen(s + n + 1) && memchr(s, '.', n);
}

static bool like_host(const char *s)
{
	const size_t n = strcspn(s, " \t:={}[]\"'");

	return n && *s != '-' && (!s[n] || s[n] == ' ' || s[n] == '\t') && (!s[n] || strstr(s + n, "slots="));
}

/* ---- words ---- */

/* `a:4,b:4` */
static bool host_list(List *l, const char *s)
{
	static const char *const here = "local";

	if (!*s)
		return fault(l, "a host list is HOST:SLOTS,HOST:SLOTS; found", s);
	while (*s) {
		const size_t n = strcspn(s, ":,");
		const char *name = arena_strn(l->a, s, n);
		int slots = 1;

		s += n;
		if (!*name || strpbrk(name, " \t"))
			return fault(l, "a host list is HOST:SLOTS,HOST:SLOTS; found", s);
		if (*s == ':') {
			s++;
			if ((slots = number(&s, 1)) < 0)
				return fault(l, "behind a host comes a number of slots from 1", s);
		}
		if (*s && *s != ',')
			return fault(l, "a host list is HOST:SLOTS,HOST:SLOTS; found", s);
		s += *s == ',';
		if (!*s && l->c->nhost == 0 && diag_nearest(name, &here, 1))
			diag_note(l->d, NOLOC,
				"'%s' is taken for a host of this name; devices of this machine are local:%d", name,
				slots);
		if (!add_slots(l, name, slots))
			return false;
	}
	return true;
}

/* `nnodes=2,nproc=8` */
static bool torchrun(List *l, const char *s)
{
	int nodes = 1, procs = 1;

	while (*s) {
		int *to = strncmp(s, "nnodes=", 7) == 0 ? &nodes : strncmp(s, "nproc=", 6) == 0 ? &procs : NULL;

		if (!to)
			return fault(l, "nnodes=N,nproc=N is expected; found", s);
		s += to == &nodes ? 7 : 6;
		if ((*to = number(&s, 1)) < 0 || (*s && *s != ','))
			return fault(l, "a number from 1 is expected; found", s);
		s += *s == ',';
	}
	for (int i = 0; i < nodes; i++)
		if (!add_slots(l, nodes == 1 ? "localhost" : arena_printf(l->a, "node%d", i), procs))
			return false;
	return true;
}

/* SLURM_JOB_NODELIST and SLURM_NTASKS_PER_NODE or SLURM_GPUS_ON_NODE. */
static bool slurm(List *l)
{
	const char *nodes = getenv("SLURM_JOB_NODELIST"), *gpus = getenv("SLURM_GPUS_ON_NODE"),
		   *tasks = getenv("SLURM_NTASKS_PER_NODE");
	const char *s = gpus ? gpus : tasks ? tasks : "1", **name;
	const char *was = s;
	const int slots = number(&s, 1);

	if (!nodes || !*nodes)
		return fault(l, "slurm: SLURM_JOB_NODELIST is not set; run inside of an allocation", "slurm");
	if (slots < 0 || (*s && *s != '('))
		return fault(l,
			"slurm: devices of a node, from SLURM_GPUS_ON_NODE or SLURM_NTASKS_PER_NODE, are no number",
			was);
	l->cuda = l->cuda || gpus;
	while (*nodes) { /* a comma inside of brackets parts no names */
		size_t n = 0;

		for (int depth = 0; nodes[n] && (depth || nodes[n] != ','); n++)
			depth += (nodes[n] == '[') - (nodes[n] == ']');
		const char *word = arena_strn(l->a, nodes, n);
		const int count = expand_brackets(l->a, word, &name);

		if (!count || !*word)
			return fault(l, "slurm: no host or range of hosts", word);
		for (int i = 0; i < count; i++)
			if (!add_slots(l, name[i], slots))
				return false;
		nodes += n + (nodes[n] == ',');
	}
	return true;
}

int hosts_read(Arena *a, const char *path, Cluster *c, Diag *d)
{
	List l = { .a = a, .c = c, .d = d, .ok = true };
	const char *colon = strchr(path, ':');

	if (strcmp(path, "slurm") == 0 || strcmp(path, "slurm:") == 0)
		return slurm(&l);
	if (strncmp(path, "nnodes=", 7) == 0 || strncmp(path, "nproc=", 6) == 0)
		return torchrun(&l, path);
	if (strncmp(path, "hosts:", 6) == 0)
		return host_list(&l, path + 6);
	const size_t n = strlen(path);
	if ((n > 5 && !strcmp(path + n - 5, ".yaml")) || (n > 4 && !strcmp(path + n - 4, ".yml")) ||
		(n > 5 && !strcmp(path + n - 5, ".json")))
		return -1;
	char *text = file_read(path, NULL);
	if (!text)
		return colon && colon[1] && !strpbrk(path, "/ ") && isdigit((unsigned char)colon[1])
		               ? host_list(&l, path)
		               : -1;
	int ok = -1;
	if (all_lines(a, text, like_resource))
		ok = each_line(&l, text, resource_line);
	else if (all_lines(a, text, like_host))
		ok = each_line(&l, text, host_line);
	free(text);
	return ok;
}
