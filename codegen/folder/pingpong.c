/* The folder that pdcc doctor measures links with: the runtime and one program for two devices. */
#include <string.h>
#include "codegen/write/build.h"
#include "emit.h"

bool codegen_pingpong(const char *dir, Diag *d)
{
	Build b = { .a = arena_new(), .d = d, .dir = dir };
	Buf text = { 0 };
	bool ok = true;

	for (int i = 0; ok && i < nembedded; i++)
		if (runtime_file(embedded[i].name, false))
			ok = build_write(&b, embedded[i].name, embedded[i].text, strlen(embedded[i].text));
	buf_puts(&text, embedded_text("codegen/frames/pingpong.c.in"));
	ok = build_text(&b, "pingpong.c", &text) && ok;
	arena_free(b.a);
	return ok;
}
