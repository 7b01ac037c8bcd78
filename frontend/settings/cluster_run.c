/* What the cluster file says of running: launcher, ssh, environment, ports, placement. */
#include <errno.h>
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "cluster_run.h"

#define COUNT(t) ((int)(sizeof(t) / sizeof *(t)))

/* ---- launch, ports ---- */

static void la_kind(Yaml *y, const YNode *v, void *to)
{
	const Launch k = (Launch)yaml_setting(y, v, "launch.kind", SET_OF_Launch);
	const bool known = k != LAUNCH_K8S && k != LAUNCH_MANUAL;

	if (!known)
		yaml_ignore(y, v, to);
	((Cluster *)to)->launch = known ? k : LAUNCH_AUTO;
}
static const YKey launch_keys[] = { { "kind", la_kind } };

void cluster_launch(Yaml *y, const YNode *v, Cluster *c)
{
	yaml_map(y, v, "launch", launch_keys, COUNT(launch_keys), c);
}

void cluster_ports(Yaml *y, const YNode *v, Cluster *c)
{
	const char *s = yaml_text(y, v, "ports");
	int end = 0;

	if (s && (sscanf(s, "%d-%d%n", &c->port[0], &c->port[1], &end) != 2 || s[end] || c->port[0] < 1 ||
			 c->port[1] < c->port[0] || c->port[1] > 65535))
		yaml_error(y, v, "network.ports is FIRST-LAST, 1 to 65535, not '%s'", s);
}

/* ---- placement ---- */

static void p_tolerate(Yaml *y, const YNode *v, void *to)
{
	((Cluster *)to)->tolerate = (int)yaml_int(y, v, "placement.tolerate", 0, 1);
}

enum { STAGES = 1 << 20 }; /* of a plan, at most (--max-stages) */

/* N of stageN; -1: it is none. */
static int stage_number(const char *s)
{
	char *end;

	if (strncmp(s, "stage", 5) || s[5] < '0' || s[5] > '9')
		return -1;
	errno = 0;
	const long n = strtol(s + 5, &end, 10);
	return errno || *end || n >= STAGES ? -1 : (int)n;
}

/* server@HOST or stageN. */
static void pin(Yaml *y, const char *pattern, const YNode *v, Cluster *c)
{
	const char *s = yaml_text(y, v, pattern), *host = s && strncmp(s, "server@", 7) == 0 ? s + 7 : NULL, **known;
	Pin p = { .pattern = pattern,
		.host = -1,
		.stage = -1,
		.line = (int)v->start_mark.line + 1,
		.col = (int)v->start_mark.column + 1 };

	if (s && !host) {
		p.stage = stage_number(s);
		if (p.stage < 0)
			yaml_error(y, v,
				"placement.pin: '%s' is server@HOST or stageN (the stages of a plan are 0, 1 ... %d), not '%s'",
				pattern, STAGES - 1, s);
		else
			c->pin[c->npin++] = p;
		return;
	}
	known = NEWN(y->a, const char *, c->nhost + 1);
	for (int i = 0; s && i < c->nhost; i++) {
		known[i] = c->host[i].name;
		if (strcmp(known[i], host) == 0)
			p.host = i;
	}
	const char *near = s && p.host < 0 ? diag_nearest(host, known, c->nhost) : NULL;
	if (s && p.host < 0)
		yaml_error(y, v, "placement.pin: no host is called '%s'%s%s%s", host, near ? "; did you mean '" : "",
			near ? near : "", near ? "'?" : "");
	else if (s && !c->host[p.host].server)
		yaml_error(y, v, "placement.pin: host '%s' has not the role server (nodes: roles)", host);
	c->pin[c->npin++] = p;
}

static void p_pin(Yaml *y, const YNode *v, void *to)
{
	Cluster *c = to;
	const char **name;
	const YNode **value;
	const int n = yaml_pairs(y, v, "placement.pin", &name, &value);

	c->pin = NEWN(y->a, Pin, n + 1);
	for (int i = 0; i < n; i++)
		pin(y, name[i], value[i], c);
}

static void p_policies(Yaml *y, const YNode *v, void *to)
{
	const SettingWords words = setting_words(SET_OF_PlacementPolicy);
	int n;
	const YNode **item = yaml_items(y, v, "placement.policies", &n);

	if (item && !n)
		yaml_error(y, v, "placement.policies is empty; it names what is allowed: %s, %s, %s", words.word[0],
			words.word[1], words.word[2]);
	for (int i = 0; i < n; i++)
		((Cluster *)to)->policies |= 1u
		                             << yaml_setting(y, item[i], "placement.policies", SET_OF_PlacementPolicy);
}

static const YKey placement_keys[] = { { "pin", p_pin }, { "policies", p_policies }, { "tolerate", p_tolerate } };

void cluster_placement(Yaml *y, const YNode *v, Cluster *c)
{
	yaml_map(y, v, "placement", placement_keys, COUNT(placement_keys), c);
}

void cluster_pins_idle(const Cluster *c, const Module *m, Diag *d)
{
	for (int k = 0; k < c->npin; k++) {
		const Pin *p = &c->pin[k];
		bool any = false;

		for (int i = 0; i < m->nparam && !any; i++)
			any = !fnmatch(p->pattern,
				m->param[i]->param->onnx_name ? m->param[i]->param->onnx_name : m->param[i]->name, 0);
		if (!any)
			diag_warn(d, TEXTLOC(c->file, p->line, p->col), "pin",
				"placement.pin: no parameter of %s is called '%s'; nothing is pinned", m->file,
				p->pattern);
	}
}

/* ---- defaults ---- */

/* Becomes a word of a command line: nothing that a shell reads as more than itself, and no option. */
static const char *one_word(Yaml *y, const YNode *v, const char *what)
{
	static const char taken[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.@%+,:/=~-";
	const char *s = yaml_text(y, v, what);

	if (s && (!*s || *s == '-' || s[strspn(s, taken)]))
		yaml_error(y, v, "%s is one word of letters, digits and _.@%%+,:/=~-, not '%s'", what, s);
	return s;
}

static void s_user(Yaml *y, const YNode *v, void *to) { ((Cluster *)to)->ssh_user = one_word(y, v, "ssh.user"); }
static void s_key(Yaml *y, const YNode *v, void *to) { ((Cluster *)to)->ssh_key = one_word(y, v, "ssh.key"); }
static void s_port(Yaml *y, const YNode *v, void *to)
{
	((Cluster *)to)->ssh_port = (int)yaml_int(y, v, "ssh.port", 1, 65535);
}
static const YKey ssh_keys[] = { { "user", s_user }, { "key", s_key }, { "port", s_port } };
static void d_ssh(Yaml *y, const YNode *v, void *to) { yaml_map(y, v, "defaults.ssh", ssh_keys, COUNT(ssh_keys), to); }

static bool variable(const char *s)
{
	return *s && !(*s >= '0' && *s <= '9') && !s[strspn(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789")];
}

static void d_env(Yaml *y, const YNode *v, void *to)
{
	Cluster *c = to;
	const char **name;
	const YNode **value;
	const int n = yaml_pairs(y, v, "defaults.env", &name, &value);

	c->env = NEWN(y->a, EnvVar, n + 1);
	for (int i = 0; i < n; i++) {
		if (!variable(name[i]))
			yaml_error(y, value[i], "'%s' is no name of a variable: A to Z, _ and digits", name[i]);
		c->env[c->nenv++] = (EnvVar){ name[i], yaml_text(y, value[i], name[i]) };
	}
}

static const YKey default_keys[] = { { "ssh", d_ssh }, { "workdir", yaml_ignore }, { "env", d_env } };

void cluster_defaults(Yaml *y, const YNode *v, Cluster *c)
{
	yaml_map(y, v, "defaults", default_keys, COUNT(default_keys), c);
}
