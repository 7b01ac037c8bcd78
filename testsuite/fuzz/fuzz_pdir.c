/* The .pdir reader: whatever parses must verify without a crash, print, and print the same after a second parse. */
#include "fuzz.h"
#include "ir/base/buf.h"
#include "ir/ir.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	Arena *a = arena_new();
	Diag d;
	char *text = arena_strn(a, (const char *)data, n);

	fuzz_diag(&d, a);
	Module *m = module_parse(a, "fuzz.pdir", text, &d);
	if (m && module_verify(m, &d)) {
		Buf one = { 0 }, two = { 0 };
		PrintOpt o = { .elide = 16 };

		module_print(&one, m, &o);
		Module *again = module_parse(a, "fuzz.pdir", buf_str(&one), &d);
		if (!again)
			abort();
		module_print(&two, again, &o);
		if (strcmp(buf_str(&one), buf_str(&two)))
			abort();
		buf_free(&one);
		buf_free(&two);
	}
	arena_free(a);
	return 0;
}
