/* json_text.c: names as strings of JSON, which are strings of YAML too: pdcc reads profile.json so. */
#include "rt.h"
#include <stdio.h>

void rt_json_text(FILE *f, const char *s)
{
	fputc('"', f);
	for (const unsigned char *c = (const unsigned char *)s; *c; c++)
		if (*c == '"' || *c == '\\')
			fprintf(f, "\\%c", *c);
		else if (*c < ' ' || *c == 0x7F)
			fprintf(f, "\\u%04x", *c);
		else if (*c == 0xC2 && (c[1] & 0xE0) == 0x80) /* U+0080 to U+009F end lines of YAML, or are refused */
			fprintf(f, "\\u%04x", *++c);
		else if (*c == 0xE2 && c[1] == 0x80 && (c[2] == 0xA8 || c[2] == 0xA9))
			fprintf(f, "\\u20%02x", c[2] - 0x80), c += 2;
		else
			fputc(*c, f);
	fputc('"', f);
}
