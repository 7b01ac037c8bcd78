/* host_reach.c: which hosts answer, when a message did not come.
 *
 * A TCP connection to a port that nobody listens at is refused at once by a host that is there, and hangs when the host or the
 * link is gone; no process has to take part. So a rank that has waited in vain can tell a host that is cut off from one that
 * is slow, and notice that it is the one that is cut off. */
#include "rt.h"
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

enum { DISCARD = 9 }; /* the port; whether anyone listens there does not matter */

static bool is_bridge(const char *interface)
{
	char path[300];

	snprintf(path, sizeof path, "/sys/class/net/%s/bridge", interface);
	return access(path, F_OK) == 0;
}

/* The addresses of this host, but those of its loop; those of bridges, which may be for guests of this host alone, last. */
void rt_addresses(uint32_t ip[RT_ADDRESSES])
{
	struct ifaddrs *all = NULL;
	int n = 0;

	memset(ip, 0, RT_ADDRESSES * sizeof *ip);
	if (getifaddrs(&all))
		return;
	for (int bridge = 0; bridge < 2; bridge++)
		for (struct ifaddrs *a = all; a && n < RT_ADDRESSES; a = a->ifa_next)
			if (a->ifa_addr && a->ifa_addr->sa_family == AF_INET && (a->ifa_flags & IFF_UP) &&
				!(a->ifa_flags & IFF_LOOPBACK) && is_bridge(a->ifa_name) == bridge) {
				struct sockaddr_in in;

				memcpy(&in, a->ifa_addr, sizeof in);
				ip[n++] = in.sin_addr.s_addr;
			}
	freeifaddrs(all);
}

/* Of another host's addresses those by which it can be told from this one: bridges of containers have the same everywhere, and
 * this host would answer for one that is gone. Their number. */
static int others_of(uint32_t to[RT_ADDRESSES], const uint32_t theirs[RT_ADDRESSES], const uint32_t mine[RT_ADDRESSES])
{
	int n = 0;

	memset(to, 0, RT_ADDRESSES * sizeof *to);
	for (int i = 0; i < RT_ADDRESSES && theirs[i]; i++) {
		bool same = false;

		for (int k = 0; k < RT_ADDRESSES; k++)
			same |= mine[k] == theirs[i];
		if (!same)
			to[n++] = theirs[i];
	}
	return n;
}

/* A connection to each address; -1: it was answered at once. */
static int begin(uint32_t ip, bool *answered)
{
	const struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons(DISCARD), .sin_addr = { ip } };
	const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	if (fd < 0)
		return -1;
	if (connect(fd, (const struct sockaddr *)&to, sizeof to) == 0 || errno == ECONNREFUSED)
		*answered = true;
	else if (errno == EINPROGRESS)
		return fd;
	close(fd);
	return -1;
}

static bool refused(int fd)
{
	int error = 0;
	socklen_t n = sizeof error;

	return getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &n) == 0 && (error == 0 || error == ECONNREFUSED);
}

/* Whether the host with these addresses answers within `seconds`. */
static bool answers(const uint32_t ip[RT_ADDRESSES], double seconds)
{
	struct pollfd p[RT_ADDRESSES];
	bool yes = false;
	nfds_t n = 0;
	const double until = rt_now() + seconds;

	for (int i = 0; i < RT_ADDRESSES && ip[i] && !yes; i++) {
		const int fd = begin(ip[i], &yes);

		if (fd >= 0)
			p[n++] = (struct pollfd){ .fd = fd, .events = POLLOUT };
	}
	while (!yes && n > 0 && rt_now() < until) {
		if (poll(p, n, 20) <= 0)
			continue;
		for (nfds_t i = 0; i < n; i++) {
			if (!p[i].revents)
				continue;
			yes |= refused(p[i].fd);
			close(p[i].fd);
			p[i--] = p[--n];
		}
	}
	for (nfds_t i = 0; i < n; i++)
		close(p[i].fd);
	return yes;
}

int rt_unreached(int wanted, int *others, int *silent)
{
	const rt_process *me = rt_process_of(rt_task_of(rt_program->rank));
	int found = -1;

	*others = *silent = 0;
	for (int r = 0; me && r < rt_tasks(); r++) {
		const rt_process *p = rt_process_of(r);
		uint32_t ip[RT_ADDRESSES];
		bool seen = !strcmp(p->host, me->host) || !others_of(ip, p->ip, me->ip);

		for (int q = 0; q < r && !seen; q++)
			seen = !strcmp(rt_process_of(q)->host, p->host);
		if (seen || (*silent > 4 && *silent == *others)) /* nobody: that is clear by now */
			continue;
		++*others;
		if (answers(ip, *silent ? 0.1 : 0.5))
			continue;
		++*silent;
		if (found < 0 || !strcmp(p->host, rt_process_of(wanted)->host))
			found = !strcmp(p->host, rt_process_of(wanted)->host) ? wanted : r;
	}
	return found;
}
