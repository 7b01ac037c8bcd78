/* The messages of a schedule: who exchanges with whom, what a microbatch's forward and backward post and send, how many buffers a
 * stage has at its entry. */
#include "sched.h"
#include "schedule.h"

bool sched_edge(const Sched *c, int from, int to, bool forward)
{
	for (int i = 0; i < c->nedge; i++)
		if ((from < 0 || c->edge[i].from == from) && (to < 0 || c->edge[i].to == to) &&
			(forward ? c->edge[i].forward : c->edge[i].backward))
			return true;
	return false;
}

static void act(Sched *c, int rank, ActKind kind, int k)
{
	const int s = c->stage[rank];
	const Action a = { .kind = kind,
		.stage = s,
		.mb = c->grain[rank][k],
		.slot = kind == ACT_RECV_F ? 0 : k % c->s->inflight[s],
		.entry = k % c->s->entries[s] };

	schedule_push(c->a, c->s, rank, a);
}

static void post_receive(Sched *c, int rank, int k)
{
	if (k < c->ngrain[rank] && sched_edge(c, -1, c->stage[rank], true))
		act(c, rank, ACT_RECV_F, k);
}

void sched_entries(Sched *c)
{
	Schedule *s = c->s;
	int *does = NEWN(c->a, int, s->ndevice);

	for (int t = 0; t < s->nstage; t++) {
		const int most = s->inflight[t] + (c->ahead ? c->ahead[t] : RECEIVE_AHEAD);
		const int micro = sched_edge(c, -1, t, true) ? s->nmicro : 0;

		s->entries[t] = s->inflight[t];
		for (int r = 0; r < s->replicas[t]; r++)
			does[s->device[t][r]] = 0;
		for (int g = 0; g < micro; g++) {
			const int n = ++does[s->device[t][s->replica_of[t][g]]];
			if (n > s->entries[t] && n <= most)
				s->entries[t] = n;
		}
	}
}

void sched_begin(Sched *c, int rank)
{
	for (int k = 0; k < c->s->entries[c->stage[rank]]; k++)
		post_receive(c, rank, k);
}

void sched_forward(Sched *c, int rank, int k)
{
	act(c, rank, ACT_F, k);
	if (sched_edge(c, c->stage[rank], -1, true))
		act(c, rank, ACT_SEND_F, k);
	if (sched_edge(c, c->stage[rank], -1, false))
		act(c, rank, ACT_RECV_B, k);
}

void sched_backward(Sched *c, int rank, int k)
{
	act(c, rank, ACT_B, k);
	if (sched_edge(c, -1, c->stage[rank], false))
		act(c, rank, ACT_SEND_B, k);
	post_receive(c, rank, k + c->s->entries[c->stage[rank]]);
}

void sched_end(Sched *c, int rank)
{
	for (int k = 0; k < 2 * c->nchunk[rank]; k++)
		schedule_push(c->a, c->s, rank,
			(Action){ .kind = k < c->nchunk[rank] ? ACT_SYNC : ACT_UPDATE,
				.stage = c->chunk[rank][k % c->nchunk[rank]],
				.mb = -1 });
}

bool sched_exchanges(const Sched *c, int stage, ActKind k)
{
	switch (k) {
	case ACT_RECV_F: return sched_edge(c, -1, stage, true);
	case ACT_SEND_F: return sched_edge(c, stage, -1, true);
	case ACT_RECV_B: return sched_edge(c, stage, -1, false);
	case ACT_SEND_B: return sched_edge(c, -1, stage, false);
	default: return true;
	}
}

/* ---- edges ---- */
