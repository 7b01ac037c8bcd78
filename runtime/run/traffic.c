/* traffic.c: bytes that a device has sent to each other one, by what they are: messages between
 * stages, sums over replicas (gradients, statistics, shared weights), and the losses, counts and
 * norms that every step gathers; values, row numbers and heads between devices and servers apart. What start, checkpoints and results move is not counted. */
#include "rt.h"
#include <stdlib.h>

typedef struct traffic {
	int64_t messages, sums, totals;
	int64_t values, ids, heads; /* between devices and servers */
} traffic;

static traffic *sent;   /* by rank; NULL: there is no other device */
static traffic *theirs; /* rank 0: what another one sent */
static int64_t *arenas; /* rank 0: theirs */
static int64_t *within; /* rank 0: what each sent to other members of its tensor group */

void rt_traffic_setup(int world)
{
	sent = rt_alloc((size_t)world * sizeof *sent);
	theirs = rt_alloc((size_t)world * sizeof *theirs);
	arenas = rt_alloc((size_t)world * sizeof *arenas);
	within = rt_alloc((size_t)world * sizeof *within);
}

void rt_traffic(int peer, int tag, bool channel, size_t bytes)
{
	traffic *t = &sent[peer];

	if (channel)
		t->messages += (int64_t)bytes;
	else if (tag == RT_TAG_VALUES)
		t->values += (int64_t)bytes;
	else if (tag == RT_TAG_IDS)
		t->ids += (int64_t)bytes;
	else if (tag == RT_TAG_HEAD)
		t->heads += (int64_t)bytes;
	else if (tag == RT_TAG_GATHER)
		t->totals += (int64_t)bytes;
	else if (tag != RT_TAG_FILE && tag != RT_TAG_LEAD)
		t->sums += (int64_t)bytes;
}

int64_t rt_traffic_sent(void)
{
	int64_t n = 0;

	if (!sent)
		return 0;
	rt_lock();
	for (int r = 0; r <= rt_program->world; r++)
		n += sent[r].messages + sent[r].sums + sent[r].totals + sent[r].values + sent[r].ids + sent[r].heads;
	rt_unlock();
	return n;
}

static void write_row(FILE *f, int from, const traffic *row, bool *first)
{
	for (int to = 0; to < rt_program->world; to++) {
		const traffic *t = &row[to];

		if (!t->messages && !t->sums && !t->totals && !t->heads && !t->values)
			continue;
		fprintf(f, "%s\n  {\"from\": %d, \"to\": %d, \"messages\": %lld, \"sums\": %lld, \"totals\": %lld",
			*first ? "" : ",", from, to, (long long)t->messages, (long long)t->sums, (long long)t->totals);
		if (t->heads || t->values)
			fprintf(f, ", \"values\": %lld, \"ids\": %lld, \"heads\": %lld", (long long)t->values,
				(long long)t->ids, (long long)t->heads);
		fprintf(f, "}");
		*first = false;
	}
}

void rt_traffic_write(FILE *f)
{
	const int world = rt_program->world;
	const size_t bytes = (size_t)(world + 1) * sizeof *sent; /* the last: to other members of the tensor group */
	int64_t arena = (int64_t)rt_program->arena;
	bool first = true;

	if (rt_program->rank != 0) {
		rt_send(0, RT_TAG_FILE, &arena, sizeof arena);
		rt_send(0, RT_TAG_FILE, sent, bytes);
		return;
	}
	fprintf(f, " \"sent_bytes\": [");
	if (sent) {
		within[0] = sent[world].sums;
		write_row(f, 0, sent, &first);
	}
	for (int r = 1; r < world; r++) {
		rt_recv(r, RT_TAG_FILE, &arenas[r], sizeof arena);
		rt_recv(r, RT_TAG_FILE, theirs, bytes);
		write_row(f, r, theirs, &first);
		within[r] = theirs[world].sums;
	}
	if (rt_tasks() > world) {
		fprintf(f, "],\n \"tensor_bytes\": [");
		for (int r = 0; r < world; r++)
			fprintf(f, "%s%lld", r ? ", " : "", (long long)within[r]);
	}
	fprintf(f, "],\n \"arena_bytes\": [");
	for (int r = 0; r < world; r++)
		fprintf(f, "%s%lld", r ? ", " : "", (long long)(r ? arenas[r] : arena));
	fprintf(f, "]");
}
