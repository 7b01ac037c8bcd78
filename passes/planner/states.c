/* Antichain states of a layer graph (states.h). A state is found by its antichain; the search goes breadth first by
 * exchanging one layer of a cut for one of its consumers, and numbers the states by a depth-first topological order. */
#include <stdlib.h>
#include <string.h>
#include "ir/base/map.h"
#include "states.h"

enum { E_STATES = 464 };

/* One antichain while the search runs. */
typedef struct Anti {
	int *layer;
	int n; /* sorted: the key */
	int *cut;
	int ncut; /* augmented: extra layers first */
	int *next;
	int nnext, cap;
	bool done;
} Anti;

typedef struct Search {
	Arena *a;
	const Profile *p;
	int words;
	uint64_t *above; /* n x words: bit u of row v: u leads to v */
	int *first, *to; /* consumers of u: to[first[u] .. first[u + 1]) */
	Anti *anti;
	int n, cap;
	Map at; /* key -> number + 1 */
	int source;
} Search;

static bool bit(const uint64_t *row, int i) { return row[i / 64] >> (i % 64) & 1; }

static const uint64_t *above(const Search *s, int v) { return s->above + (size_t)v * (size_t)s->words; }

static void link_layers(Search *s)
{
	const Profile *p = s->p;
	int *order = NEWN(s->a, int, p->n), *at;
	bool *fed = NEWN(s->a, bool, p->n);

	s->words = (p->n + 63) / 64;
	s->above = NEWN(s->a, uint64_t, (size_t)p->n *(size_t)s->words);
	s->first = NEWN(s->a, int, p->n + 1);
	s->to = NEWN(s->a, int, p->nedge);
	for (int e = 0; e < p->nedge; e++) {
		s->first[p->edge[e].from + 1]++;
		fed[p->edge[e].to] = true;
	}
	for (int i = 0; i < p->n; i++)
		s->first[i + 1] += s->first[i];
	at = arena_dup(s->a, s->first, (size_t)(p->n + 1) * sizeof *at);
	for (int e = 0; e < p->nedge; e++)
		s->to[at[p->edge[e].from]++] = p->edge[e].to;
	profile_order(s->a, p, order);
	for (int i = 0; i < p->n; i++)
		for (int u = order[i], e = s->first[u]; e < s->first[u + 1]; e++) {
			uint64_t *row = s->above + (size_t)s->to[e] * (size_t)s->words;

			for (int w = 0; w < s->words; w++)
				row[w] |= above(s, u)[w];
			row[u / 64] |= UINT64_C(1) << (u % 64);
		}
	while (s->source < p->n - 1 && fed[s->source])
		s->source++;
}

/* The cut of an antichain: layers above one of its layers with a consumer that is not above that one, then itself. */
static void augment(Search *s, Anti *t)
{
	uint64_t *extra = NEWN(s->a, uint64_t, s->words);
	int n = 0;

	for (int i = 0; i < t->n; i++)
		for (int u = 0; u < s->p->n; u++)
			if (bit(above(s, t->layer[i]), u) && !bit(extra, u))
				for (int e = s->first[u]; e < s->first[u + 1]; e++)
					if (s->to[e] != t->layer[i] && !bit(above(s, t->layer[i]), s->to[e])) {
						extra[u / 64] |= UINT64_C(1) << (u % 64);
						n++;
						break;
					}
	t->cut = NEWN(s->a, int, n + t->n);
	for (int u = 0; u < s->p->n; u++)
		if (bit(extra, u))
			t->cut[t->ncut++] = u;
	for (int i = 0; i < t->n; i++)
		if (!bit(extra, t->layer[i]))
			t->cut[t->ncut++] = t->layer[i];
}

static int by_number(const void *a, const void *b) { return *(const int *)a - *(const int *)b; }

/* The number of the antichain of these layers; a new one gets its cut. */
static int find(Search *s, const int *layer, int n)
{
	Anti t = { .layer = arena_dup(s->a, layer, (size_t)n * sizeof *layer), .n = n };
	char *key = arena_alloc(s->a, (size_t)n * 8 + 1), *end = key;

	qsort(t.layer, (size_t)n, sizeof *t.layer, by_number);
	for (int i = 0; i < n; i++) /* digits of base 64 that are never 0 */
		for (unsigned v = (unsigned)t.layer[i], k = 0; k < 4; k++, v /= 64)
			*end++ = (char)(' ' + v % 64);
	const size_t at = (size_t)map_get(&s->at, key);
	if (at)
		return (int)at - 1;
	memcpy(t.layer, layer, (size_t)n * sizeof *layer); /* the order in which it was met decides the numbering */
	augment(s, &t);
	PUSH(s->a, s->anti, s->n, s->cap) = t;
	map_put(&s->at, key, (void *)(size_t)s->n);
	return s->n - 1;
}

/* The antichain after `old` of the cut gave way to `now`: layers above others of it are left out. */
static int exchange(Search *s, const Anti *t, int old, int now)
{
	int *v = NEWN(s->a, int, t->ncut), n = 0;

	for (int i = 0; i < t->ncut; i++) {
		const int x = t->cut[i] == old ? now : t->cut[i];
		bool keep = true;

		for (int k = 0; k < t->ncut && keep; k++)
			keep = !bit(above(s, t->cut[k] == old ? now : t->cut[k]), x);
		for (int k = 0; k < n && keep; k++)
			keep = v[k] != x;
		if (keep)
			v[n++] = x;
	}
	return find(s, v, n);
}

static void expand(Search *s, int at)
{
	const Anti t = s->anti[at];
	int *next = NULL, n = 0, cap = 0;

	for (int i = 0; i < t.ncut; i++)
		for (int e = s->first[t.cut[i]]; e < s->first[t.cut[i] + 1]; e++) {
			const int v = s->to[e];
			bool fits = true;

			for (int k = 0; k < t.n && fits; k++)
				fits = t.layer[k] != v;
			for (int k = 0; k < t.ncut && fits; k++)
				fits = !bit(above(s, t.cut[k]), v);
			if (fits)
				PUSH(s->a, next, n, cap) = exchange(s, &t, t.cut[i], v);
		}
	s->anti[at].next = next;
	s->anti[at].nnext = n;
}

/* Stable, by the description of an antichain's first layer: what the published graph code sorts by. */
static void by_desc(const Search *s, int *v, int n)
{
	for (int i = 1; i < n; i++)
		for (int k = i; k; k--) {
			const int x = v[k], y = v[k - 1];

			if (strcmp(s->p->layer[s->anti[x].layer[0]].desc, s->p->layer[s->anti[y].layer[0]].desc) >= 0)
				break;
			v[k] = y;
			v[k - 1] = x;
		}
}

/* From every antichain in turn the ones behind it before it, deepest first: order[] is filled from its end. */
static void number_states(Search *s, int *order)
{
	int *stack = NEWN(s->a, int, s->n), *step = NEWN(s->a, int, s->n), *root = NEWN(s->a, int, s->n), left = s->n;

	for (int i = 0; i < s->n; i++) {
		root[i] = i;
		by_desc(s, s->anti[i].next, s->anti[i].nnext);
	}
	by_desc(s, root, s->n);
	for (int i = 0; i < s->n; i++) {
		int n = 0;

		if (!s->anti[root[i]].done)
			stack[n++] = root[i];
		s->anti[root[i]].done = true;
		while (n) {
			const int v = stack[n - 1];

			if (step[v] == s->anti[v].nnext) {
				order[--left] = v;
				n--;
				continue;
			}
			const int w = s->anti[v].next[step[v]++];
			if (!s->anti[w].done) {
				s->anti[w].done = true;
				stack[n++] = w;
			}
		}
	}
}

/* Sums and predecessors of the state with number i. */
static void fill(const Search *s, States *st, int i, const Anti *t, const int *place, bool live)
{
	State *x = &st->s[i];
	uint64_t *under = st->under + (size_t)i * (size_t)st->layer_words;

	for (int k = 0; k < t->ncut; k++) {
		for (int w = 0; w < s->words; w++)
			under[w] |= above(s, t->cut[k])[w];
		under[t->cut[k] / 64] |= UINT64_C(1) << (t->cut[k] % 64);
	}
	for (int u = 0; u < s->p->n; u++)
		if (bit(under, u)) {
			x->time += s->p->layer[u].forward + s->p->layer[u].backward;
			x->activation += s->p->layer[u].activation;
			x->parameters += s->p->layer[u].parameters;
		}
	x->layer = NEWN(s->a, int, t->ncut);
	for (int k = 0; k < t->ncut; k++) {
		const int u = t->cut[k];
		bool crosses = !live;

		for (int e = s->first[u]; e < s->first[u + 1] && !crosses; e++)
			crosses = !bit(under, s->to[e]);
		if (crosses) {
			x->layer[x->n++] = u;
			x->cut += s->p->layer[u].activation;
		}
	}
	for (int e = 0; e < t->nnext; e++) { /* all behind it hear of its predecessors when their turn comes */
		uint64_t *row = st->before + (size_t)place[t->next[e]] * (size_t)st->words;

		for (int w = 0; w < st->words; w++)
			row[w] |= st->before[(size_t)i * (size_t)st->words + (size_t)w];
		row[i / 64] |= UINT64_C(1) << (i % 64);
	}
}

bool states_build(Arena *a, const Profile *p, bool live, int limit, States *st, Diag *d)
{
	Search s = { .a = a, .p = p };

	if (!p->n)
		return diag_error(d, FILELOC(p->file), E_STATES, "the profile has nothing but inputs");
	map_init(&s.at, a, true);
	link_layers(&s);
	find(&s, &s.source, 1);
	for (int i = 0; i < s.n; i++) {
		if (s.n > limit)
			return diag_error(d, FILELOC(p->file), E_STATES,
				"the graph has more than %d places to cut; branches made short "
				"(--compress) have fewer",
				limit);
		expand(&s, i);
	}
	int *order = NEWN(a, int, s.n), *place = NEWN(a, int, s.n);
	number_states(&s, order);
	for (int i = 0; i < s.n; i++)
		place[order[i]] = i;
	*st = (States){ .p = p,
		.n = s.n,
		.words = (s.n + 63) / 64,
		.layer_words = s.words,
		.first = s.first,
		.to = s.to,
		.total = true };
	st->s = NEWN(a, State, st->n);
	st->before = NEWN(a, uint64_t, (size_t)st->n *(size_t)st->words);
	st->under = NEWN(a, uint64_t, (size_t)st->n *(size_t)st->layer_words);
	for (int i = 0; i < st->n; i++)
		fill(&s, st, i, &s.anti[order[i]], place, live);
	for (int i = 1; i < st->n; i++)
		st->total &= state_before(st, i - 1, i);
	return true;
}

double states_input(const States *st, int k, int j)
{
	const uint64_t *in = st->under + (size_t)k * (size_t)st->layer_words;
	const uint64_t *end = st->under + (size_t)j * (size_t)st->layer_words;
	double bytes = 0;

	for (int i = 0; i < st->s[k].n; i++)
		for (int u = st->s[k].layer[i], e = st->first[u]; e < st->first[u + 1]; e++)
			if (bit(end, st->to[e]) && !bit(in, st->to[e])) {
				bytes += st->p->layer[u].activation;
				break;
			}
	return bytes;
}
