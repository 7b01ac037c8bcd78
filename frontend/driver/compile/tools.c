/* Programs that pdcc calls: are they there, and do they succeed? */
#include "tools.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include "ir/base/buf.h"

bool tool_found(const char *name)
{
	Buf b = { 0 };

	buf_printf(&b, "command -v %s >/dev/null 2>&1", name);
	const int rc = system(buf_str(&b));
	buf_free(&b);
	return rc == 0;
}

bool tool_needed(Diag *d, const char *name)
{
	return tool_found(name) ||
	       diag_error(d, NOLOC, 801, "'%s' is not installed; it is needed to build and run the programs", name);
}

bool tool_run(Diag *d, const char *what, const char *command)
{
	const int rc = system(command);

	if (rc == 0)
		return true;
	return diag_error(d, NOLOC, 802, "%s failed (%d): %s", what, WIFEXITED(rc) ? WEXITSTATUS(rc) : rc, command);
}

const char *first_line(Arena *a, const char *command)
{
	char line[256] = "";
	FILE *f = popen(arena_printf(a, "{ %s; } 2>/dev/null </dev/null", command), "r");

	if (!f)
		return NULL;
	while (!*line && fgets(line, sizeof line, f))
		line[strcspn(line, "\n")] = 0;
	while (fgetc(f) != EOF)
		;
	return pclose(f) == 0 || *line ? arena_str(a, line) : NULL;
}
