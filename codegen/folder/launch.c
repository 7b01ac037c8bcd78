/* run.sh: how the programs of a build folder are started, here or on the hosts of the cluster, by mpirun or srun. */
#include <string.h>
#include "codegen/write/build.h"

static const char *host_of(const Build *b, int rank)
{
	const int t = stage_of_rank(b, rank), d = b->m->stage[t]->device[rank - b->first_rank[t]];

	if (!b->c || b->c->local || d < 0 || d >= b->c->ndevice)
		return NULL;
	const Host *h = &b->c->host[b->c->device[d].host];
	return h->address && *h->address ? h->address : h->name;
}

/* 'TEXT' for the shell. */
static const char *shell_word(Arena *a, const char *s)
{
	Buf out = { 0 };

	buf_puts(&out, "'");
	for (; *s; s++)
		buf_printf(&out, *s == '\'' ? "'\\''" : "%c", *s);
	buf_puts(&out, "'");
	const char *text = arena_str(a, buf_str(&out));
	buf_free(&out);
	return text;
}

/* A setting of Open MPI that the caller's environment may override. */
static void mca(Build *b, Buf *out, const char *name, const char *value)
{
	buf_printf(out, "[ -n \"$OMPI_MCA_%s\" ] || export OMPI_MCA_%s=%s\n", name, name, shell_word(b->a, value));
}

/* What the cluster file says of the network, of ssh and of the environment. */
static const char *environment(Build *b)
{
	const Cluster *c = b->c;
	Arena *a = b->a;
	const char *ssh = "";
	Buf out = { 0 };

	for (int i = 0; c && i < c->nenv; i++)
		buf_printf(&out, "export %s=%s\n", c->env[i].name, shell_word(a, c->env[i].value));
	if (c && !c->local && c->interface) {
		mca(b, &out, "btl_tcp_if_include", c->interface);
		mca(b, &out, "oob_tcp_if_include", c->interface);
	}
	if (c && !c->local && c->port[0]) {
		mca(b, &out, "btl_tcp_port_min_v4", arena_printf(a, "%d", c->port[0]));
		mca(b, &out, "btl_tcp_port_range_v4", arena_printf(a, "%d", c->port[1] - c->port[0] + 1));
	}
	if (c && c->ssh_user)
		ssh = arena_printf(a, "%s -l %s", ssh, c->ssh_user);
	if (c && c->ssh_port)
		ssh = arena_printf(a, "%s -p %d", ssh, c->ssh_port);
	if (c && c->ssh_key)
		ssh = arena_printf(a, "%s -i %s", ssh, c->ssh_key);
	if (*ssh)
		mca(b, &out, "plm_rsh_args", ssh + 1);
	const char *text = arena_str(a, buf_str(&out));
	buf_free(&out);
	return text;
}

static const char launch_head[] =
	"\n"
	"command -v mpirun > /dev/null || {\n"
	"\techo \"run.sh: no mpirun is here to start several programs (Debian: apt install openmpi-bin); pdcc doctor says what else is missing\" >&2\n"
	"\texit 127\n"
	"}\n"
	"# what the ranks have of this launcher alone: whoever has not got it is refused\n"
	"PD_SECRET=${PD_SECRET:-$(od -An -N16 -tx1 /dev/urandom | tr -d ' \\n')}\n"
	"export PD_SECRET\n"
	"flags=\n"
	"if mpirun --version 2>/dev/null | grep -q 'Open MPI'; then\n"
	"\tflags='--oversubscribe --bind-to none%s'\n"
	"\t[ \"$(id -u)\" = 0 ] && flags=\"$flags --allow-run-as-root\"\n"
	"\t# what the programs are told by the environment, on other hosts too\n"
	"\tfor name in OMP_NUM_THREADS ASAN_OPTIONS%s $(env | sed -n 's/^\\(PD_[A-Z_]*\\)=.*/\\1/p'); do\n"
	"\t\tcase $name in PD_MPIRUN_FLAGS | PD_PROBE) ;; *) flags=\"$flags -x $name\" ;; esac\n"
	"\tdone\n"
	"fi\n"
	"# shellcheck disable=SC2086\n"
	"[ -n \"$PD_PROBE\" ] && exec mpirun $flags $PD_MPIRUN_FLAGS -np 1 -host \"$PD_PROBE\" true\n"
	"# shellcheck disable=SC2086\n"
	"exec mpirun $flags $PD_MPIRUN_FLAGS";

static const char launch_once[] =
	"\n"
	"[ -z \"$PD_STARTED\" ] || { echo \"run.sh: mpirun does not say which rank a task is\" >&2; exit 78; }\n"
	"export PD_STARTED=1";

/* A command line with a part for each rank is what Open MPI 5 of Debian 13 dies of (open-mpi/ompi issue 13303). It is needed only
 * where ranks of a host do not follow each other: "n1:2,n2:2" where they do; NULL: they do not. */
static const char *host_list(const Build *b)
{
	Buf out = { 0 };

	for (int r = 0, end; r < b->m->schedule->ndevice; r = end) {
		const char *host = host_of(b, r);

		for (int k = 0; k < r; k++)
			if (!strcmp(host_of(b, k), host)) {
				buf_free(&out);
				return NULL;
			}
		for (end = r + 1; end < b->m->schedule->ndevice && !strcmp(host_of(b, end), host);)
			end++;
		buf_printf(&out, "%s%s:%d", r ? "," : "", host, first_task(b->m, end) - first_task(b->m, r));
	}
	const char *list = arena_str(b->a, buf_str(&out));
	buf_free(&out);
	return list;
}

static const char *mpirun_line(Build *b, bool hosts)
{
	const int world = tasks_of(b);
	const char *names = "", *list = hosts ? host_list(b) : "";
	Buf out = { 0 };

	if (world == 1 && !hosts)
		return "\nexec ${PD_WRAP:+\"$PD_WRAP\" --exec 0} \"$dir/bin/${PD_PROGRAM}0\" \"$@\"";
	for (int i = 0; b->c && i < b->c->nenv; i++)
		names = arena_printf(b->a, "%s %s", names, b->c->env[i].name);
	if (list)
		buf_puts(&out, launch_once);
	buf_printf(&out, launch_head, list && *list ? " --map-by slot" : "", names);
	if (list)
		buf_printf(&out, " -np %d%s%s sh \"$0\" \"$@\"", world, *list ? " -host " : "", list);
	for (int r = 0; !list && r < world; r++)
		buf_printf(&out,
			"%s \\\n\t-np 1 -host %s ${PD_WRAP:+\"$PD_WRAP\" --exec %d} \"$dir/bin/${PD_PROGRAM}%d\" \"$@\"",
			r ? " :" : "", host_of(b, rank_of_task(b, r)), r, r);
	const char *text = arena_str(b->a, buf_str(&out));
	buf_free(&out);
	return text;
}

/* Where PD_LAUNCH does not say it. */
static const char *launch_kind(const Build *b, const char **said)
{
	const Launch kind = b->c ? b->c->launch : LAUNCH_AUTO;

	*said = "mpirun where there is one, else srun in a Slurm allocation";
	if (kind == LAUNCH_AUTO)
		return "auto";
	*said = "as the cluster file says";
	return kind == LAUNCH_SLURM ? "srun" : "mpirun";
}

/* tolerate.txt: a host as the launcher calls it (a device: @NAME), its ranks, the folder of the plan without it. */
static bool emit_tolerated(Build *b)
{
	const Cluster *c = b->c;
	Buf out = { 0 };

	for (int i = 0; c && i < c->nwithout; i++) {
		const char *ranks = "", *name = arena_printf(b->a, "@%s", c->without[i]);
		for (int task = 0; task < tasks_of(b); task++) {
			const int r = rank_of_task(b, task), t = stage_of_rank(b, r);
			const Device *d = &c->device[b->m->stage[t]->device[r - b->first_rank[t]]];
			if (strcmp(c->local ? d->name : c->host[d->host].name, c->without[i]))
				continue;
			ranks = arena_printf(b->a, "%s%s%d", ranks, *ranks ? "," : "", task);
			name = host_of(b, r) ? host_of(b, r) : name;
		}
		buf_printf(&out, "%s %s without-%s\n", name, ranks, c->without[i]);
	}
	return !c || !c->nwithout || build_text(b, "tolerate.txt", &out);
}

bool emit_launch(Build *b)
{
	const int world = tasks_of(b);
	const char *said, *kind = launch_kind(b, &said), *places = "";
	Buf out = { 0 };

	for (int r = 0; r < world; r++) {
		const char *host = host_of(b, rank_of_task(b, r));
		if (host && host[strspn(host, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_")])
			return diag_error(b->d, FILELOC(b->c->file), 705,
				"'%s' is no name of a host that mpirun could be given", host);
		if (host)
			places = arena_printf(
				b->a, "%s%s%s", places, *places ? "," : " --distribution=arbitrary --nodelist=", host);
	}
	build_frame(&out, "run.sh.in",
		(const char *const[]){ "WORLD", arena_printf(b->a, "%d", world), "VERSION", PDCC_VERSION, "THREADS",
			arena_printf(b->a, "%d", threads_of(b, 0)), "HOSTS",
			*places ? "# This folder has to be on every host under the same path.\n" : "", "ENV",
			environment(b), "KIND", kind, "DEFAULT", said, "PLACES", places, "LAUNCH",
			mpirun_line(b, *places), NULL });
	return build_text(b, "run.sh", &out) && emit_tolerated(b);
}
