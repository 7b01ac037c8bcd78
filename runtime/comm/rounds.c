/* rounds.c: who exchanges what in each round (Pipe-SGD, related algorithms of AllReduce).
 *
 *     doubling   everything to the member that differs in one bit, log2 p rounds: few latencies
 *     halving    half of what is left to the member that differs in one bit, log2 p rounds, then the
 *                same way back: few latencies and the least bytes
 *     pairwise   to each other member its chunk, then to each the own finished one: 2 (n - 1) rounds,
 *                all links in use at once
 *
 *     hosts      inside each host to its first member, as a tree; pairwise between these; back inside the
 *                hosts: a host sends and receives as little as if it had one member
 *
 * The first two want a power of two: with p the largest below n, the first 2 (n - p) members fold, even
 * ones into the odd one behind them, and get the result at the end. Everybody ends with the same bits:
 * x + y is y + x, and an element is added up by one member alone or by mates in step. */
#include "rounds.h"

static void idle(rounds_step *x) { *x = (rounds_step){ .to = -1, .from = -1 }; }

static int power_below(int n)
{
	int p = 1;

	while (2 * p <= n)
		p *= 2;
	return p;
}

static void fold(int self, bool back, size_t count, rounds_step *x)
{
	const bool sends = (self % 2 == 0) != back;

	idle(x);
	*(sends ? &x->to : &x->from) = self % 2 ? self - 1 : self + 1;
	*(sends ? &x->send_n : &x->recv_n) = count;
	x->add = !back;
}

/* The part that member id of p has after `rounds` halvings, and that of its mate in the last of them. */
static void halves(int id, int p, int rounds, size_t count, size_t mine[2], size_t other[2])
{
	size_t lo = 0, hi = count;

	other[0] = other[1] = 0;
	for (int bit = p / 2; rounds-- > 0; bit /= 2) {
		const size_t mid = lo + (hi - lo) / 2;
		const bool upper = (id & bit) != 0;

		other[0] = upper ? lo : mid;
		other[1] = upper ? mid : hi;
		lo = upper ? mid : lo;
		hi = upper ? hi : mid;
	}
	mine[0] = lo;
	mine[1] = hi;
}

/* Round k of log2 p, or of twice as many. */
static void exchange(rounds_kind kind, int id, int p, int k, int log, size_t count, rounds_step *x, int *mate)
{
	size_t mine[2], other[2];

	if (kind == ROUNDS_DOUBLING) {
		*mate = id ^ 1 << k;
		*x = (rounds_step){ .send_n = count, .recv_n = count, .add = true };
		return;
	}
	const bool back = k >= log;
	const int depth = back ? 2 * log - k : k + 1;

	*mate = id ^ p >> depth;
	halves(id, p, depth, count, mine, other);
	x->add = !back;
	x->send_at = back ? mine[0] : other[0];
	x->send_n = back ? mine[1] - mine[0] : other[1] - other[0];
	x->recv_at = back ? other[0] : mine[0];
	x->recv_n = back ? other[1] - other[0] : mine[1] - mine[0];
}

static bool pairwise(int n, int self, int k, size_t count, rounds_step *x)
{
	const bool back = k >= n - 1;
	const int step = (back ? k - (n - 1) : k) + 1;

	if (k >= 2 * (n - 1))
		return false;
	x->to = (self + step) % n;
	x->from = (self + n - step) % n;
	x->add = !back;
	const size_t out = (size_t)(back ? self : x->to), in = (size_t)(back ? x->from : self), all = (size_t)n;
	x->send_at = count * out / all;
	x->send_n = count * (out + 1) / all - x->send_at;
	x->recv_at = count * in / all;
	x->recv_n = count * (in + 1) / all - x->recv_at;
	return true;
}

void rounds_number(int n, const int *host, int *space, rounds_hosts *h)
{
	*h = (rounds_hosts){ .number = space, .at = space + n, .member = space + 2 * n, .begin = space + 3 * n };
	for (int i = 0; i < n; i++) { /* begin: a member of each host, then how many it has */
		int c = i && host ? h->number[i - 1] : 0;

		if (i == 0 || (host && host[i] != host[i - 1]))
			for (c = 0; c < h->n && host && host[h->begin[c]] != host[i];)
				c++;
		if (c == h->n)
			h->begin[h->n++] = i;
		h->number[i] = c;
	}
	for (int c = 0; c <= h->n; c++)
		h->begin[c] = 0;
	for (int i = 0; i < n; i++)
		h->at[i] = h->begin[h->number[i] + 1]++;
	for (int c = 0; c < h->n; c++) {
		while (1 << h->depth < h->begin[c + 1])
			h->depth++;
		h->begin[c + 1] += h->begin[c];
	}
	for (int i = 0; i < n; i++)
		h->member[h->begin[h->number[i]] + h->at[i]] = i;
}

static bool hosts(const rounds_hosts *h, int self, int k, size_t count, rounds_step *x)
{
	const int between = 2 * (h->n - 1), at = h->at[self], mine = h->number[self], first = h->begin[mine];
	const bool back = k >= h->depth + between;

	idle(x);
	if (k >= 2 * h->depth + between)
		return false;
	if (k < h->depth || back) {
		const int bit = 1 << (back ? 2 * h->depth + between - 1 - k : k);

		if (at & (bit - 1) || (at ^ bit) >= h->begin[mine + 1] - first)
			return true;
		const bool sends = ((at & bit) != 0) != back;

		*(sends ? &x->to : &x->from) = h->member[first + (at ^ bit)];
		*(sends ? &x->send_n : &x->recv_n) = count;
		x->add = !back;
		return true;
	}
	if (at)
		return true;
	pairwise(h->n, mine, k - h->depth, count, x);
	x->to = h->member[h->begin[x->to]];
	x->from = h->member[h->begin[x->from]];
	return true;
}

bool rounds_step_of(rounds_kind kind, int n, const rounds_hosts *h, int self, int k, size_t count, rounds_step *x)
{
	if (kind == ROUNDS_PAIRWISE)
		return pairwise(n, self, k, count, x);
	if (kind == ROUNDS_HOSTS)
		return hosts(h, self, k, count, x);
	const int p = power_below(n), folded = n - p;
	int log = 0, mate;

	while (1 << log < p)
		log++;
	const int rounds = kind == ROUNDS_DOUBLING ? log : 2 * log, first = folded > 0;

	if (k >= rounds + 2 * first)
		return false;
	idle(x);
	if (folded && (k == 0 || k == rounds + 1)) {
		if (self < 2 * folded)
			fold(self, k > 0, count, x);
		return true;
	}
	if (self < 2 * folded && self % 2 == 0)
		return true;
	exchange(kind, self < 2 * folded ? self / 2 : self - folded, p, k - first, log, count, x, &mate);
	x->to = x->from = mate < folded ? 2 * mate + 1 : mate + folded;
	return true;
}
