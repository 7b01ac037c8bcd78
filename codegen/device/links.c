/* Who exchanges what with whom, for messages from GPU to GPU (runtime/crossing/gpu_nccl.c): those of a lane are told apart by their order alone,
 * so both sides must come to them in one order. The channels between two devices are dealt to as few lanes as that allows. Groups
 * of devices that sum or share something stand beside them. */
#include <inttypes.h>
#include <string.h>
#include "device.h"

typedef struct Message {
	int channel, mb;
} Message;
typedef struct Messages {
	Message *v;
	int n, cap;
} Messages;

/* The rank that does microbatch mb of a stage. */
static int rank_of(const Schedule *s, int64_t stage, int mb) { return s->device[stage][s->replica_of[stage][mb]]; }

/* What `rank` sends to `peer`, or takes from there, in the order of its actions. */
static Messages messages(const Build *b, int rank, int peer, bool sends)
{
	const Schedule *s = b->m->schedule;
	Messages out = { 0 };

	for (int i = 0; i < s->dev[rank].n; i++) {
		const Action *x = &s->dev[rank].act[i];
		const bool forward = x->kind == (sends ? ACT_SEND_F : ACT_RECV_F);
		if (!forward && x->kind != (sends ? ACT_SEND_B : ACT_RECV_B))
			continue;
		const Graph *g = forward ? b->m->stage[x->stage]->forward : b->m->stage[x->stage]->backward;
		for (const Node *n = g->first; n; n = n->next)
			if (n->op == (sends ? OP_Send : OP_Recv) &&
				rank_of(s, attr_int(n, sends ? "to" : "from"), x->mb) == peer)
				PUSH(b->a, out.v, out.n, out.cap) = (Message){ (int)attr_int(n, "channel"), x->mb };
	}
	return out;
}

/* Both sides come to the messages on some channels in one order. */
static bool one_order(Messages sent, Messages got, const int *lane, int which)
{
	int k = 0;

	for (int i = 0; i < sent.n; i++) {
		if (lane[sent.v[i].channel] != which)
			continue;
		while (k < got.n && lane[got.v[k].channel] != which)
			k++;
		if (k == got.n || got.v[k].channel != sent.v[i].channel || got.v[k].mb != sent.v[i].mb)
			return false;
		k++;
	}
	return true;
}

enum { ABSENT = -2 };

/* Stages of unlike tensor groups tell each other what goes from a member to several: through the host. */
static bool alike(const Build *b, int from, int to)
{
	return stage_tensor(b->m, stage_of_rank(b, from)) == stage_tensor(b->m, stage_of_rank(b, to));
}

/* The lane of each channel from one rank to another; -1: the channel by itself is in two orders, or groups are unlike; ABSENT: nothing
 * goes there. */
static int *lanes(const Build *b, int from, int to)
{
	const Messages sent = messages(b, from, to, true), got = messages(b, to, from, false);
	int *lane = NEWN(b->a, int, b->channels + 1), last = -1;

	for (int c = 0; c < b->channels; c++)
		lane[c] = ABSENT;
	for (int c = 0; c < b->channels; c++) {
		bool used = false;
		for (int i = 0; i < sent.n; i++)
			used |= sent.v[i].channel == c;
		for (int k = 0; used && k <= last + 1 && lane[c] < 0; k++) {
			lane[c] = k;
			lane[c] = alike(b, from, to) && one_order(sent, got, lane, k) ? k : -1;
		}
		last = lane[c] > last ? lane[c] : last;
	}
	return lane;
}

/* The stage of `rank`, of several, with the tensor of a channel that it sends, or receives. */
static const Stage *stage_with(const Build *b, int rank, int channel, bool sends, const Value **v)
{
	for (int t = stage_of_rank(b, rank); t >= 0; t = next_chunk(b, t))
		for (int k = 0; k < 2; k++)
			for (const Node *n = (k ? b->m->stage[t]->backward : b->m->stage[t]->forward)->first; n;
				n = n->next)
				if (n->op == (sends ? OP_Send : OP_Recv) && attr_int(n, "channel") == channel) {
					*v = sends ? n->in[0] : n->out[0];
					return b->m->stage[t];
				}
	bug("rank %d has no channel %d", rank, channel);
}

static void write_link(const Build *b, CwItems *items, int rank, int peer, int channel, int lane, bool sends)
{
	const Value *v;
	const Stage *s = stage_with(b, rank, channel, sends, &v);

	cw_item(items, "{ %d, %d, %d, %s, %d, %" PRId64 " }", channel, peer, lane, sends ? "true" : "false",
		v->region == REGION_ENTRY ? s->entries : s->inflight, message_bytes(b, v));
}

static void write_table(const Build *b, Cw *w, int rank)
{
	CwItems items = { .w = w };

	cw_blank(w);
	cw_comment(w,
		"what it sends (true) and receives: channel, the other device, lane, slots, bytes; both sides come to the messages of a "
		"lane in one order");
	cw_open(w, "static const pd_link links[] =");
	for (int peer = 0; peer < b->m->schedule->ndevice; peer++)
		for (int sends = 0; sends < 2 && peer != rank; sends++) {
			const int *lane = sends ? lanes(b, rank, peer) : lanes(b, peer, rank);
			for (int c = 0; c < b->channels; c++)
				if (lane[c] != ABSENT)
					write_link(b, &items, rank, peer, c, lane[c], sends);
		}
	cw_items_end(&items);
	cw_close(w, ";");
}

typedef struct Groups {
	Ints *v;
	int n, cap;
} Groups;

/* Adds a group of several, each once; of unlike ones the host sums. */
static void add_group(const Build *b, Groups *groups, Ints ranks)
{
	bool known = ranks.n < 2;

	for (int i = 1; i < ranks.n; i++)
		known |= !alike(b, (int)ranks.v[0], (int)ranks.v[i]);
	for (int i = 0; i < groups->n; i++)
		known |= groups->v[i].n == ranks.n &&
		         !memcmp(groups->v[i].v, ranks.v, (size_t)ranks.n * sizeof *ranks.v);
	if (!known)
		PUSH(b->a, groups->v, groups->n, groups->cap) = ranks;
}

/* The groups that the stages of a rank sum or share in, as initialisers; how many. */
static const char *groups_text(const Build *b, int rank, int *n)
{
	Groups groups = { 0 };
	const char *text = "";

	for (int t = stage_of_rank(b, rank); t >= 0; t = next_chunk(b, t)) {
		const Stage *s = b->m->stage[t];
		int64_t *replicas = NEWN(b->a, int64_t, s->replicas);
		for (int r = 0; r < s->replicas; r++)
			replicas[r] = b->first_rank[t] + r;
		add_group(b, &groups, (Ints){ .v = replicas, .n = s->replicas });
		for (const Node *k = s->update->first; k; k = k->next)
			if (k->op == OP_Broadcast)
				add_group(b, &groups, attr_ints(k, "ranks"));
	}
	for (*n = 0; *n < groups.n; ++*n)
		text = arena_printf(b->a, "%s%s{ %d, (const int[]){ %s } }", text, *n ? ", " : "", groups.v[*n].n,
			ranks_text(b->a, groups.v[*n]));
	return text;
}

void write_links(const Build *b, Cw *w, int rank)
{
	if (b->gpu && b->channels && !b->m->stage[stage_of_rank(b, rank)]->server)
		write_table(b, w, rank);
}

void write_link_members(const Build *b, Cw *w, int rank)
{
	int n;
	const char *groups = groups_text(b, rank, &n);

	if (!b->gpu || b->m->stage[stage_of_rank(b, rank)]->server)
		return;
	if (b->channels)
		cw_line(w, ".nlinks = sizeof links / sizeof *links, .links = links,");
	if (n)
		cw_line(w, ".ngroups = %d, .groups = (const pd_group[]){ %s },", n, groups);
}
