/* Which server holds what (servers.c): by bytes, the largest first to the emptiest, so that no server has more than the mean and
 * one parameter (PX-20); but what the cluster file pins (placement.pin) to a host goes to a server there. */
#include <fnmatch.h>
#include <stdlib.h>
#include "servers.h"

/* What the cluster file pins the parameter to; NULL: nothing. */
static const Pin *pin_of(const Cluster *c, const Value *w)
{
	for (int i = 0; c && i < c->npin; i++)
		if (!fnmatch(c->pin[i].pattern, w->param->onnx_name ? w->param->onnx_name : w->name, 0))
			return c->pin[i].host >= 0 ? &c->pin[i] : NULL;
	return NULL;
}

/* The emptiest server, of those at the pin's host; -1: there is none. */
static int emptiest(const Cluster *c, const int *device, const int64_t *load, int n, const Pin *pin)
{
	int to = -1;

	for (int s = 0; s < n; s++)
		if ((!pin || c->device[device[s]].host == pin->host) && (to < 0 || load[s] < load[to]))
			to = s;
	return to;
}

/* Pins may leave a server nothing: there is none then. at: by server, -1. Gives how many are left. */
static int leave_empty_out(int *device, int *at, int nserver, Held *held, int n)
{
	int left = 0;

	for (int i = 0; i < n; i++)
		at[held[i].server] = 0;
	for (int s = 0; s < nserver; s++)
		if (at[s] >= 0) {
			device[left] = device[s];
			at[s] = left++;
		}
	for (int i = 0; i < n; i++)
		held[i].server = at[held[i].server];
	return left;
}

/* The largest first; of as large ones those in front. */
static int by_bytes(const void *x, const void *y)
{
	const Held *a = *(Held *const *)x, *b = *(Held *const *)y;

	return a->bytes != b->bytes ? (a->bytes < b->bytes) - (a->bytes > b->bytes) : (a > b) - (a < b);
}

int *servers_spread(const Module *m, PassCx *cx, Held *held, int n, int *nserver)
{
	const Cluster *c = cx->cluster;
	int *host = NEWN(cx->scratch, int, m->schedule->ndevice + (c ? c->ndevice : 0) + 1);
	const int hosts = server_hosts(m, c, host), asked = cx->train ? (int)cx->train->comm.servers : 0;

	if (!hosts) {
		diag_error(cx->d, FILELOC(c->file), 431,
			"--comm %s needs a server; no host of the plan has the role server (nodes: roles)",
			setting_word(SET_OF_Comm, (int)cx->train->comm.by));
		return NULL;
	}
	const int most = asked ? asked : hosts, count = most > n ? n : most;
	int *device = NEWN(cx->scratch, int, count);
	int64_t *load = NEWN(cx->scratch, int64_t, count);
	for (int s = 0; s < count; s++)
		device[s] = host[s % hosts];
	int *at = NEWN(cx->scratch, int, count);
	for (int s = 0; s < count; s++)
		at[s] = -1;
	Held **order = NEWN(cx->scratch, Held *, n);
	for (int i = 0; i < n; i++)
		order[i] = &held[i];
	qsort(order, (size_t)n, sizeof *order, by_bytes);
	for (int k = 0; k < n; k++) {
		Held *next = order[k];
		const Pin *pin = pin_of(c, next->w);
		const int to = emptiest(c, device, load, count, pin);
		if (to < 0) {
			diag_error(cx->d, TEXTLOC(c->file, pin->line, pin->col), 433,
				"placement.pin: '%s' is to be at host '%s', where none of the "
				"%d server%s is; --servers N says how many there are",
				next->w->name, c->host[pin->host].name, count, count == 1 ? "" : "s");
			return NULL;
		}
		next->server = to;
		load[to] += next->bytes;
	}
	*nserver = leave_empty_out(device, at, count, held, n);
	return device;
}
