/* plan.c: what plan.json of a build folder says of its ranks. A reader for JSON that is well formed; of anything else it says that
 * nothing is there. */
#include "pdrun.h"
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *skip_space(const char *p)
{
	while (isspace((unsigned char)*p))
		p++;
	return p;
}

/* Behind the string that begins at p; NULL: it has no end. */
static const char *skip_string(const char *p)
{
	for (p++; *p && *p != '"'; p++)
		if (*p == '\\' && p[1])
			p++;
	return *p ? p + 1 : NULL;
}

/* Behind the value at p; NULL: it has no end. */
static const char *skip_value(const char *p)
{
	int open = 0;

	do {
		p = skip_space(p);
		if (!*p)
			return NULL;
		if (*p == '"') {
			if (!(p = skip_string(p)))
				return NULL;
			continue;
		}
		open += *p == '{' || *p == '[';
		open -= *p == '}' || *p == ']';
		if (strchr("{}[],:", *p))
			p++;
		else
			p += strcspn(p, "{}[],: \t\r\n\"");
	} while (open > 0);
	return p;
}

/* The value of a member of the object at p; NULL: there is none. */
static const char *member(const char *p, const char *name)
{
	const size_t n = strlen(name);

	if (!p || *p != '{')
		return NULL;
	for (p = skip_space(p + 1); *p == '"'; p = skip_space(p + 1)) {
		const char *key = p + 1, *close = skip_string(p);
		if (!close || *(p = skip_space(close)) != ':')
			return NULL;
		p = skip_space(p + 1);
		if ((size_t)(close - key) == n + 1 && !strncmp(key, name, n))
			return p;
		if (!(p = skip_value(p)) || *(p = skip_space(p)) != ',')
			return NULL;
	}
	return NULL;
}

/* The item of the array at p that follows `last`, NULL: the first one; NULL: there is none. */
static const char *item_after(const char *p, const char *last)
{
	if (!p || *p != '[')
		return NULL;
	if (!last)
		return *(p = skip_space(p + 1)) == ']' ? NULL : p;
	p = skip_value(last);
	return p && *(p = skip_space(p)) == ',' ? skip_space(p + 1) : NULL;
}

static int int_at(const char *p, int none) { return p && (isdigit((unsigned char)*p) || *p == '-') ? atoi(p) : none; }

/* To be freed; NULL: it cannot be read. */
static char *read_plan(const char *dir)
{
	char path[PATH + 32], *text = NULL;
	size_t n = 0, cap = 0, got = 1;

	snprintf(path, sizeof path, "%.*s/plan.json", PATH - 1, dir);
	FILE *f = fopen(path, "r");

	while (f && got > 0) {
		if (n + 1 >= cap) {
			char *more = realloc(text, cap = 2 * cap + 4096);
			if (!more)
				break;
			text = more;
		}
		got = fread(text + n, 1, cap - n - 1, f);
		n += got;
	}
	if (f)
		fclose(f);
	if (text)
		text[n] = 0;
	return text;
}

bool plan_name(const char *dir, int rank, char *name, size_t room)
{
	char *text = read_plan(dir);
	const char *stages = text ? member(skip_space(text), "stages") : NULL, *stage = NULL, *server;
	bool found = false;

	while (!found && (stage = item_after(stages, stage))) {
		const char *devices = member(stage, "devices"), *device = NULL;
		for (int r = 0; !found && (device = item_after(devices, device)); r++) {
			found = int_at(member(device, "rank"), -1) == rank;
			server = member(stage, "server");
			if (found)
				snprintf(name, room, "%s%d.r%d", server && *server == 't' ? "server" : "stage",
					int_at(member(stage, "stage"), 0), r);
		}
	}
	free(text);
	return found;
}

double plan_timeout(const char *dir)
{
	char *text = read_plan(dir);
	const char *at = text ? member(skip_space(text), "timeout") : NULL;
	const double seconds = at ? atof(at) : 0;

	free(text);
	return seconds > 0 ? seconds : 60;
}
