/* Plans whose stages are divided unlike: where a search for one begins, and what is next to a plan. The devices of a plan are a row,
 * in which stages lie one behind the other; a move leaves the row as it is, so that every move can be taken back by another. What
 * has to be true of any of them: members of a group are neighbours on one host. */
#include "unlike.h"
#include <string.h>
#include "ir/base/buf.h"
#include "passes/common/plan.h"

enum { HOSTS = 8 }; /* more are not a stage each */

static int devices_of(const Staged *x, int stage) { return x->replicas[stage] * x->members[stage]; }

static bool neighbours(const Cluster *c, const int *device, int n)
{
	for (int i = 1; i < n; i++)
		if (device[i] != device[i - 1] + 1 || c->device[device[i]].host != c->device[device[0]].host)
			return false;
	return true;
}

static bool groups_hold(const Cluster *c, const Staged *x)
{
	int at = 0;

	for (int s = 0; s < x->n; s++)
		for (int r = 0; r < x->replicas[s]; r++, at += x->members[s])
			if (!neighbours(c, x->device + at, x->members[s]))
				return false;
	return true;
}

bool staged_alike(const Staged *x)
{
	for (int s = 0; s < x->n; s++)
		if (x->members[s] != x->members[0] || x->along[s] != x->along[0])
			return false;
	return true;
}

/* With room for a stage more. */
static int *numbers(Arena *a, const int *from, int n)
{
	return memcpy(NEWN(a, int, n + 1), from, sizeof *from * (size_t)n);
}

static Staged copy(Arena *a, const Staged *x)
{
	Staged y = *x;

	y.replicas = numbers(a, x->replicas, x->n);
	y.members = numbers(a, x->members, x->n);
	y.zero = numbers(a, x->zero, x->n);
	y.along = numbers(a, x->along, x->n);
	y.until = x->until ? arena_dup(a, x->until, sizeof *x->until * (size_t)x->n) : NULL;
	return y;
}

/* ---- moves ---- */

/* So many devices go from the end of one stage to the front of the next, or back. */
static bool give(Staged *x, int from, int to)
{
	const int m = x->members[from], k = x->members[to], n = m % k == 0 ? m : k % m == 0 ? k : m * k;

	if (devices_of(x, from) <= n)
		return false;
	x->replicas[from] -= n / m;
	x->replicas[to] += n / k;
	return true;
}

/* A stage's groups double with devices of a neighbour. */
static bool grow(Staged *x, int s, int by)
{
	const int n = by >= 0 && by < x->n ? devices_of(x, s) : 0;

	if (!n || n % x->members[by] || devices_of(x, by) <= n || x->members[s] > GROUP_MOST / 2)
		return false;
	x->replicas[by] -= n / x->members[by];
	x->members[s] *= 2;
	return true;
}

/* The stages behind s begin `by` places later. */
static void shift(Staged *x, int s, int by)
{
	int *const of[] = { x->replicas, x->members, x->zero, x->along };

	for (size_t i = 0; i < sizeof of / sizeof *of; i++)
		memmove(of[i] + s + 1 + (by > 0), of[i] + s + 1 + (by < 0),
			sizeof **of * (size_t)(x->n - s - 1 - (by < 0)));
	x->n += by;
}

static bool split(Staged *x, int s)
{
	int *const half = x->replicas[s] > 1 ? x->replicas : x->members, more = half[s] / 2;

	if (x->replicas[s] == 1 && half[s] % 2)
		return false;
	shift(x, s, 1);
	x->replicas[s + 1] = x->replicas[s];
	x->members[s + 1] = x->members[s];
	x->zero[s + 1] = x->zero[s];
	x->along[s + 1] = x->along[s];
	half[s] -= more;
	half[s + 1] = more;
	for (int i = s; i < s + 2; i++) {
		x->zero[i] = x->replicas[i] > 1 ? x->zero[i] : 0;
		x->along[i] = x->members[i] > 1 ? x->along[i] : SEQUENCE_OFF;
	}
	return true;
}

static bool join(Staged *x, int s)
{
	const int n = s + 1 < x->n && x->n > 2 ? devices_of(x, s) + devices_of(x, s + 1) : 0;

	if (!n || n % x->members[s])
		return false;
	shift(x, s, -1);
	x->replicas[s] = n / x->members[s];
	return true;
}

static bool shape(Staged *x, StagedMove move, int s)
{
	x->until = NULL; /* other shapes, other cuts */
	switch (move) {
	case MOVE_WIDER:
		if (x->replicas[s] % 2 || x->members[s] > GROUP_MOST / 2)
			return false;
		x->replicas[s] /= 2;
		x->members[s] *= 2;
		return true;
	case MOVE_NARROWER:
		if (x->members[s] % 2)
			return false;
		x->replicas[s] *= 2;
		x->members[s] /= 2;
		return true;
	case MOVE_SPLIT: return split(x, s);
	case MOVE_JOIN: return join(x, s);
	case MOVE_GROW: return grow(x, s, s + 1);
	case MOVE_GROW_BACK: return grow(x, s, s - 1);
	case MOVE_GIVE: return s + 1 < x->n && give(x, s, s + 1);
	default: return s + 1 < x->n && give(x, s + 1, s);
	}
}

static int place_of(const Staged *x, int stage)
{
	for (int i = 0; stage >= 0 && i < x->nplace; i++)
		if (x->until[stage] && !strcmp(x->place[i], x->until[stage]))
			return i;
	return stage < 0 ? -1 : x->nplace - 1;
}

static bool recut(Staged *x, int s, int by)
{
	if (!x->until || s + 1 >= x->n)
		return false;
	const int to = place_of(x, s) + by;

	if (to <= place_of(x, s - 1) || to >= place_of(x, s + 1))
		return false;
	x->until[s] = x->place[to];
	return true;
}

static bool resize(const StagedRoom *room, Staged *x, bool larger)
{
	if (!room->micro || x->micro < 1 || (larger ? room->samples % (2 * x->micro) : x->micro % 2))
		return false;
	x->micro = larger ? 2 * x->micro : x->micro / 2;
	return true;
}

static bool moved(const StagedRoom *room, Staged *x, StagedMove move, int s)
{
	switch (move) {
	case MOVE_EARLIER:
	case MOVE_LATER: return room->shapes && recut(x, s, move == MOVE_LATER ? 1 : -1);
	case MOVE_ZERO_LESS: return room->zero && x->replicas[s] > 1 && x->zero[s]-- > 0;
	case MOVE_ZERO_MORE: return room->zero && x->replicas[s] > 1 && x->zero[s]++ < 3;
	case MOVE_SEQUENCE:
		x->along[s] = x->along[s] == SEQUENCE_ON ? SEQUENCE_OFF : SEQUENCE_ON;
		return room->sequence && x->members[s] > 1;
	case MOVE_SMALLER:
	case MOVE_LARGER: return !s && resize(room, x, move == MOVE_LARGER);
	default: return room->shapes && shape(x, move, s);
	}
}

bool staged_move(Arena *a, const StagedRoom *room, const Staged *x, StagedMove move, int stage, Staged *to)
{
	*to = copy(a, x);
	return moved(room, to, move, stage) && groups_hold(room->c, to) && (to->until || !staged_alike(to));
}

/* ---- where a search begins ---- */

static Staged plan_of(Arena *a, int n, int ndevice, int zero, int64_t micro)
{
	Staged x = { .n = n,
		.replicas = NEWN(a, int, n),
		.members = NEWN(a, int, n),
		.zero = NEWN(a, int, n),
		.along = NEWN(a, int, n),
		.ndevice = ndevice,
		.device = NEWN(a, int, ndevice),
		.micro = micro };

	for (int s = 0; s < n; s++) {
		x.zero[s] = zero;
		x.along[s] = SEQUENCE_OFF;
	}
	return x;
}

/* Stages of the devices [first[s], first[s + 1]). whole: bit s is set where stage s is one group. */
static Staged blocks(Arena *a, const int *first, int n, bool back, unsigned whole, int zero, int64_t micro)
{
	Staged x = plan_of(a, n, first[n], zero, micro);

	for (int s = 0, at = 0; s < n; s++) {
		const int block = back ? n - 1 - s : s, size = first[block + 1] - first[block];
		const bool one = whole >> s & 1 && size <= GROUP_MOST;
		x.members[s] = one ? size : 1;
		x.replicas[s] = one ? 1 : size;
		for (int i = 0; i < size; i++)
			x.device[at++] = first[block] + i;
	}
	return x;
}

int staged_starts(Arena *a, const Cluster *c, int zero, int64_t micro, Staged **to)
{
	const int n = cluster_workers(c);
	int first[HOSTS + 1], hosts = 0, found = 0, cap = 0;

	for (int i = 0; i < n; i++)
		if (!i || c->device[i].host != c->device[i - 1].host) {
			if (hosts == HOSTS)
				return 0;
			first[hosts++] = i;
		}
	first[hosts] = n;
	if (hosts == 1 && n > 1) {
		const int half[3] = { 0, n / 2, n }, other[3] = { 0, n - n / 2, n };
		for (unsigned whole = 1; whole <= 2; whole++) {
			PUSH(a, *to, found, cap) = blocks(a, half, 2, false, whole, zero, micro);
			if (n % 2)
				PUSH(a, *to, found, cap) = blocks(a, other, 2, false, whole, zero, micro);
		}
	}
	for (int back = 0; back < 2 && hosts > 1; back++)
		for (unsigned whole = 0; whole < 2; whole++)
			PUSH(a, *to, found, cap) = blocks(a, first, hosts, back, whole ? ~0u : 0, zero, micro);
	return found;
}

bool cluster_unlike(const Cluster *c)
{
	const int n = cluster_workers(c);
	int size = 0, of_first = 0;

	for (int i = 0; i < n; i++) {
		const Device *x = &c->device[i], *y = &c->device[0];
		if (x->cuda != y->cuda || x->memory != y->memory || x->flops != y->flops ||
			x->half_flops != y->half_flops || x->mem_bandwidth != y->mem_bandwidth)
			return true;
		size++;
		if (i + 1 < n && c->device[i + 1].host == x->host)
			continue;
		of_first = of_first ? of_first : size;
		if (size != of_first)
			return true;
		size = 0;
	}
	return false;
}

/* ---- settings ---- */

/* The group that --tensor `members` makes with this first device (cluster_group.c); -1: none. */
static int group_with(const Cluster *c, int members, int first)
{
	int n = 0;

	for (int i = 0, end; i < c->ndevice; i = end) {
		end = i + 1;
		while (end < c->ndevice && c->device[end].host == c->device[i].host)
			end++;
		for (int k = i; k + members <= end; k += members, n++)
			if (k == first)
				return n;
	}
	return -1;
}

/* Where its groups begin. *grouped: and which of the groups of --tensor that are; false: these are others. */
static bool groups_of(Arena *a, const Cluster *c, const Staged *x, int **first, int **grouped, int *n)
{
	bool all = true;

	*first = NEWN(a, int, x->ndevice);
	*grouped = NEWN(a, int, x->ndevice);
	*n = 0;
	for (int s = 0, at = 0; s < x->n; s++)
		for (int r = 0; r < x->replicas[s]; r++, at += x->members[s]) {
			(*first)[*n] = x->device[at];
			(*grouped)[*n] = group_with(c, x->members[s], x->device[at]);
			all &= (*grouped)[(*n)++] >= 0;
		}
	return all;
}

void staged_settings(Arena *a, const StagedRoom *room, const Staged *x, PlanSettings *p)
{
	const Staged own = copy(a, x);
	int *first, *grouped, n;
	const bool like = groups_of(a, room->c, x, &first, &grouped, &n) && staged_alike(x) &&
	                  (!room->sequence || x->along[0] != SEQUENCE_ON);
	GivenPlan *g = NEW(a, GivenPlan);

	*g = (GivenPlan){ .n = x->n,
		.until = own.until,
		.line = NEWN(a, int, x->n),
		.col = NEWN(a, int, x->n),
		.replicas = own.replicas,
		.ndevice = n,
		.device = grouped,
		.shard = NEWN(a, GivenShard, x->n),
		.order = x->order,
		.by = "local search over stages" };
	p->replicas = NULL;
	p->given = g;
	p->choose_tensor = p->choose_zero = false;
	plan_degrees(p, own.members, x->n);
	p->sequence_of = NULL;
	p->group_at = NULL;
	if (room->zero)
		p->zero = -1;
	for (int s = 0; s < x->n && room->zero; s++)
		g->shard[s] = (GivenShard){ .said = true, .zero = x->zero[s] };
	if (like)
		return;
	p->tensor_of = own.members;
	p->ntensor_of = x->n;
	p->group_at = first;
	for (int s = 0; s < x->n && room->sequence; s++)
		if (own.along[s] == SEQUENCE_ON)
			p->sequence_of = own.along;
	for (int r = 0; r < n; r++)
		g->device[r] = r;
}

/* ---- text ---- */

static void put_numbers(Buf *b, const char *what, const int *number, int n)
{
	buf_puts(b, what);
	for (int s = 0; s < n; s++)
		buf_printf(b, "%s%d", s ? "-" : "", number[s]);
}

const char *staged_text(Arena *a, const Staged *x)
{
	bool zero = false, along = false;
	Buf b = { 0 };

	for (int s = 0; s < x->n; s++) {
		buf_printf(&b, "%s%dx%d", s ? "-" : "", x->replicas[s], x->members[s]);
		zero |= x->zero[s] > 0;
		along |= x->along[s] == SEQUENCE_ON;
	}
	if (zero)
		put_numbers(&b, ", zero ", x->zero, x->n);
	for (int s = 0; s < x->n && along; s++)
		buf_printf(&b, "%s%s", s ? "-" : ", sequence ", x->along[s] == SEQUENCE_ON ? "on" : "off");
	const char *text = arena_str(a, buf_str(&b));
	buf_free(&b);
	return text;
}

const char *staged_key(Arena *a, const Staged *x)
{
	Buf b = { 0 };

	buf_printf(&b, "%lld %d", (long long)x->micro, x->until ? x->order : 0);
	put_numbers(&b, " ", x->replicas, x->n);
	put_numbers(&b, " ", x->members, x->n);
	put_numbers(&b, " ", x->zero, x->n);
	put_numbers(&b, " ", x->along, x->n);
	put_numbers(&b, " ", x->device, x->ndevice);
	for (int s = 0; s + 1 < x->n && x->until; s++)
		buf_printf(&b, " %s", x->until[s]);
	const char *text = arena_str(a, buf_str(&b));
	buf_free(&b);
	return text;
}
