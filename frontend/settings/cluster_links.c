/* links: what joins two hosts of cluster.yaml, the devices of one, or whatever no other entry says. */
#include <string.h>
#include "cluster_run.h"

#define COUNT(x) ((int)(sizeof(x) / sizeof *(x)))

typedef struct LinkRead {
	Link l;
	bool scoped;
	const Cluster *c;
} LinkRead;

static void l_within(Yaml *y, const YNode *v, void *to)
{
	LinkRead *x = to;

	yaml_setting(y, v, "within", SET_OF_LinkWithin);
	x->l.scope = LINK_WITHIN;
	x->scoped = true;
}

static void l_between(Yaml *y, const YNode *v, void *to)
{
	LinkRead *x = to;
	int n, at[2] = { 0, 0 };
	const YNode **item = yaml_items(y, v, "between", &n);

	if (n != 2) {
		yaml_error(y, v, "between names two hosts, not %d", n);
		return;
	}
	for (int i = 0; i < 2; i++) {
		const char *s = yaml_text(y, item[i], "a host");
		const char **names = NEWN(y->a, const char *, x->c->nhost);
		int k = 0;

		for (int h = 0; h < x->c->nhost; h++)
			names[h] = x->c->host[h].name;
		while (s && k < x->c->nhost && strcmp(names[k], s))
			k++;
		if (s && k == x->c->nhost) {
			const char *near = diag_nearest(s, names, x->c->nhost);

			yaml_error(y, item[i], "no host is called '%s'%s%s%s", s, near ? "; did you mean '" : "",
				near ? near : "", near ? "'?" : "");
			return;
		}
		at[i] = k;
	}
	x->l.scope = LINK_BETWEEN;
	x->l.host_a = at[0];
	x->l.host_b = at[1];
	x->scoped = true;
}

static void l_default(Yaml *y, const YNode *v, void *to)
{
	LinkRead *x = to;

	if (yaml_bool(y, v, "default")) {
		x->l.scope = LINK_DEFAULT;
		x->scoped = true;
	}
}
static void l_kind(Yaml *y, const YNode *v, void *to) { ((LinkRead *)to)->l.kind = yaml_text(y, v, "kind"); }
static void l_band(Yaml *y, const YNode *v, void *to) { ((LinkRead *)to)->l.bandwidth = yaml_rate(y, v, "bandwidth"); }
static void l_lat(Yaml *y, const YNode *v, void *to) { ((LinkRead *)to)->l.latency = yaml_seconds(y, v, "latency"); }

static const YKey link_keys[] = {
	{ "within", l_within },
	{ "between", l_between },
	{ "default", l_default },
	{ "kind", l_kind },
	{ "bandwidth", l_band },
	{ "latency", l_lat },
};

void cluster_links(Yaml *y, const YNode *v, Cluster *c, int *room)
{
	int n;
	const YNode **item = yaml_items(y, v, "links", &n);

	for (int i = 0; i < n; i++) {
		LinkRead x = { .l = { .latency = 20e-6 }, .c = c };

		yaml_map(y, item[i], arena_printf(y->a, "links[%d]", i), link_keys, COUNT(link_keys), &x);
		if (y->ok && !x.scoped)
			yaml_error(y, item[i], "links[%d] says neither 'within', 'between' nor 'default'", i);
		if (y->ok && x.l.bandwidth <= 0)
			yaml_error(y, item[i], "links[%d] needs 'bandwidth'", i);
		PUSH(y->a, c->link, c->nlink, *room) = x.l;
	}
}
