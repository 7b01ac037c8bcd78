/* pdcc doctor: the hosts of a cluster file. One command per host by ssh says how many cores and GPUs there are, which MPI, what
 * time it is and who listens on the ports of the file; a connection to the first of these ports says whether packets get
 * there at all: refused is well (nobody listens yet), silence is a firewall. */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>
#include "doctor.h"
#include "frontend/driver/compile/tools.h"

enum { E_HOST = 809, WAIT_MS = 2000 };
static const double SKEW = 0.5; /* seconds that clocks may differ: traces and metrics of ranks are put side by side */

typedef struct Answer {
	int cores, gpus, taken; /* taken: ports of the range on which somebody listens; -1: the host does not say */
	double ahead, within;   /* its clock beside ours; half of the time that the question took */
	char mpi[128];
} Answer;

const char *doctor_address(const Host *h) { return h->address && *h->address ? h->address : h->name; }

bool doctor_plain(const char *name)
{
	return !name[strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_")] && *name != '-';
}

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* What is asked; a shell there answers in lines of KEY=VALUE. LISTEN is state 0A of /proc/net/tcp, ports are hexadecimal. */
static const char *question(Arena *a, const Cluster *k)
{
	const char *ports =
		!k->port[0]
			? ""
			: arena_printf(a,
				  "; [ -r /proc/net/tcp ] && echo taken=$(cat /proc/net/tcp /proc/net/tcp6 2>/dev/null | "
				  "while read n l r s o; do [ \"$s\" = 0A ] && p=$((0x${l##*:})) && [ $p -ge %d ] && [ $p -le %d ] && echo $p; done | sort -u | wc -l)",
				  k->port[0], k->port[1]);

	return arena_printf(a,
		"echo clock=$(date +%%s.%%N); echo cores=$(nproc); echo gpus=$(nvidia-smi -L 2>/dev/null | grep -c ^GPU); "
		"echo mpi=$(mpirun --version 2>/dev/null | head -n 1)%s",
		ports);
}

static const char *ssh(Arena *a, const Cluster *k, const char *to)
{
	const char *s = "ssh -o BatchMode=yes -o ConnectTimeout=3";

	if (k->ssh_user)
		s = arena_printf(a, "%s -l '%s'", s, k->ssh_user);
	if (k->ssh_port)
		s = arena_printf(a, "%s -p %d", s, k->ssh_port);
	if (k->ssh_key)
		s = arena_printf(a, "%s -i '%s'", s, k->ssh_key);
	return arena_printf(a, "%s %s '%s'", s, to, question(a, k));
}

static bool ask(Arena *a, const Cluster *k, const char *to, Answer *x)
{
	char line[512];
	double clock = 0;
	const double before = now();
	FILE *f = popen(arena_printf(a, "{ %s; } 2>/dev/null </dev/null", ssh(a, k, to)), "r");

	*x = (Answer){ .taken = -1 };
	while (f && fgets(line, sizeof line, f)) {
		line[strcspn(line, "\n")] = 0;
		if (sscanf(line, "clock=%lf", &clock) == 1) {
			const double after = now();
			x->ahead = clock - (before + after) / 2;
			x->within = (after - before) / 2;
		}
		sscanf(line, "cores=%d", &x->cores);
		sscanf(line, "gpus=%d", &x->gpus);
		sscanf(line, "taken=%d", &x->taken);
		if (strncmp(line, "mpi=", 4) == 0)
			snprintf(x->mpi, sizeof x->mpi, "%.127s", line + 4);
	}
	if (f)
		pclose(f);
	return x->cores > 0;
}

/* Packets to that port are answered, be it with a refusal. *why: in words, where they are not. */
static bool answers(const char *to, int port, const char **why)
{
	char service[16];
	struct addrinfo *list = NULL, hints = { .ai_socktype = SOCK_STREAM };
	bool ok = false;

	snprintf(service, sizeof service, "%d", port);
	const int rc = getaddrinfo(to, service, &hints, &list);
	*why = rc ? gai_strerror(rc) : "no address";
	for (const struct addrinfo *i = list; i && !ok; i = i->ai_next) {
		const int fd = socket(i->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
		struct pollfd p = { .fd = fd, .events = POLLOUT };
		int err = fd < 0 ? errno : 0;
		socklen_t n = sizeof err;

		if (fd >= 0 && connect(fd, i->ai_addr, i->ai_addrlen))
			err = errno;
		if (err == EINPROGRESS) {
			err = poll(&p, 1, WAIT_MS) == 1 ? 0 : ETIMEDOUT;
			if (!err)
				getsockopt(fd, SOL_SOCKET, SO_ERROR, &err, &n);
		}
		if (fd >= 0)
			close(fd);
		ok = !err || err == ECONNREFUSED;
		*why = strerror(err);
	}
	if (list)
		freeaddrinfo(list);
	return ok;
}

static int count(const Cluster *k, int host, bool cuda)
{
	int n = 0;

	for (int i = 0; i < k->ndevice; i++)
		n += k->device[i].host == host && k->device[i].cuda == cuda;
	return n;
}

/* What does not fit to what the file says, or to this machine. */
static void judge(const Compile *c, int h, const Answer *x, const char *mpi)
{
	const Cluster *k = &c->cluster;
	const char *to = doctor_address(&k->host[h]);
	const int gpus = count(k, h, true), range = k->port[1] - k->port[0] + 1;
	const Loc at = FILELOC(k->file);

	if (fabs(x->ahead) - x->within > SKEW)
		diag_warn(c->d, at, "clock-skew",
			"the clock of %s is %.1f s %s (within %.1f s); traces and metrics of its ranks are off by as "
			"much",
			to, fabs(x->ahead), x->ahead > 0 ? "ahead" : "behind", x->within);
	if (k->host[h].cores > x->cores)
		diag_warn(c->d, at, "host-cores", "the file says %s has %d cores; it has %d", to, k->host[h].cores,
			x->cores);
	if (gpus && x->gpus < gpus)
		diag_warn(c->d, at, "host-gpus", "the file says %s has %d GPUs; nvidia-smi there lists %d", to, gpus,
			x->gpus);
	if (!*x->mpi)
		diag_error(c->d, at, E_HOST, "no mpirun is in the PATH of %s for commands by ssh", to);
	else if (mpi && strcmp(mpi, x->mpi))
		diag_warn(c->d, at, "mpi-version", "%s has %s, this machine %s; MPI wants the same on all hosts", to,
			x->mpi, mpi);
	if (k->port[0] && x->taken >= range)
		diag_error(c->d, at, E_HOST, "all ports %d-%d of %s are taken", k->port[0], k->port[1], to);
}

static void show(const Compile *c, int h, const char *mpi)
{
	const Cluster *k = &c->cluster;
	const char *to = doctor_address(&k->host[h]), *why;
	Answer x;

	if (!doctor_plain(to) || !ask(c->a, k, to, &x)) {
		printf("  %-12s not reached by ssh\n", to);
		diag_error(c->d, FILELOC(k->file), E_HOST,
			"%s is not reached: `ssh -o BatchMode=yes %s` fails within 3 s", to, to);
		return;
	}
	printf("  %-12s reached by ssh, %d cores", to, x.cores);
	if (x.gpus)
		printf(", %d GPU%s", x.gpus, x.gpus > 1 ? "s" : "");
	printf(", clock %+.2f s (within %.2f)", x.ahead, x.within);
	if (k->port[0]) {
		const bool open = answers(to, k->port[0], &why);
		printf(", port %d %s", k->port[0], open ? "answers" : "does not answer");
		if (x.taken > 0)
			printf(", %d of %d ports taken", x.taken, k->port[1] - k->port[0] + 1);
		if (!open)
			diag_error(c->d, FILELOC(k->file), E_HOST,
				"port %d of %s does not answer (%s): a firewall between the hosts?", k->port[0], to,
				why);
	}
	putchar('\n');
	fflush(stdout);
	judge(c, h, &x, mpi);
}

void doctor_hosts(const Compile *c)
{
	const Cluster *k = &c->cluster;
	const char *mpi = k->local ? NULL : first_line(c->a, "mpirun --version");

	printf("%-14s %d device%s on %d host%s\n", "cluster", k->ndevice, k->ndevice > 1 ? "s" : "", k->nhost,
		k->nhost > 1 ? "s" : "");
	for (int h = 0; h < k->nhost && !k->local; h++)
		show(c, h, mpi);
}
