/* Growing strings and whole files. */
#define _XOPEN_SOURCE 700 /* realpath */
#include "buf.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "diag.h"

static void reserve(Buf *b, size_t more)
{
	if (b->cap - b->n > more)
		return;
	size_t cap = b->cap ? 2 * b->cap : 256;

	while (cap - b->n <= more)
		cap *= 2;
	char *s = realloc(b->s, cap);
	if (!s) {
		fprintf(stderr, "pdcc: error: out of memory: %zu bytes wanted\n", cap);
		exit(1);
	}
	b->s = s;
	b->cap = cap;
}

void buf_add(Buf *b, const void *p, size_t n)
{
	reserve(b, n);
	if (n)
		memcpy(b->s + b->n, p, n);
	b->n += n;
	b->s[b->n] = 0;
}

void buf_int(Buf *b, int64_t n)
{
	char digit[20];
	int k = (int)sizeof digit;
	uint64_t left = n < 0 ? 0 - (uint64_t)n : (uint64_t)n;

	if (n < 0)
		buf_putc(b, '-');
	do
		digit[--k] = (char)('0' + left % 10);
	while (left /= 10);
	buf_add(b, digit + k, sizeof digit - (size_t)k);
}

void buf_puts(Buf *b, const char *s) { buf_add(b, s, strlen(s)); }

void buf_putc(Buf *b, char c) { buf_add(b, &c, 1); }

void buf_vprintf(Buf *b, const char *fmt, va_list ap)
{
	va_list again;

	reserve(b, 1);
	va_copy(again, ap);
	const size_t room = b->cap - b->n;
	const int n = vsnprintf(b->s + b->n, room, fmt, again);
	va_end(again);
	if (n < 0) {
		b->s[b->n] = 0;
		return;
	}
	if ((size_t)n >= room) {
		reserve(b, (size_t)n + 1);
		vsnprintf(b->s + b->n, (size_t)n + 1, fmt, ap);
	}
	b->n += (size_t)n;
}

void buf_printf(Buf *b, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	buf_vprintf(b, fmt, ap);
	va_end(ap);
}

const char *buf_str(const Buf *b) { return b->s ? b->s : ""; }

const char *buf_kept(Buf *b, Arena *a)
{
	const char *s = arena_strn(a, buf_str(b), b->n);

	buf_free(b);
	return s;
}

void buf_free(Buf *b)
{
	free(b->s);
	*b = (Buf){ 0 };
}

void buf_clear(Buf *b)
{
	b->n = 0;
	if (b->s)
		b->s[0] = 0;
}

/* Until the end of f; 0, or an errno: EFBIG of what is no file, and may have no end. */
static int read_all(Buf *to, FILE *f)
{
	enum { MOST = 1 << 28 }; /* bytes */
	char chunk[1 << 16];
	struct stat st;
	size_t got;
	const bool ends = fstat(fileno(f), &st) == 0 && S_ISREG(st.st_mode);

	while ((got = fread(chunk, 1, sizeof chunk, f)) > 0) {
		if (!ends && to->n + got > MOST)
			return EFBIG;
		buf_add(to, chunk, got);
	}
	return ferror(f) ? errno ? errno : EIO : 0;
}

/* For reading; a named pipe that nobody opens for writing is given up after PATIENCE: ETIMEDOUT. NULL with errno set. */
static FILE *open_to_read(const char *path, Buf *to)
{
	enum { PATIENCE = 5000 }; /* ms */
	struct stat st;
	const int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	int bad = fd < 0 || fstat(fd, &st) != 0 ? errno : S_ISDIR(st.st_mode) ? EISDIR : 0;

	if (!bad && S_ISFIFO(st.st_mode) && poll(&(struct pollfd){ fd, POLLIN, 0 }, 1, PATIENCE) == 0) {
		char c;
		const ssize_t got = read(fd, &c, 1); /* 0: nobody writes; else what is written comes late */

		bad = got == 0 ? ETIMEDOUT : 0;
		if (got == 1)
			buf_add(to, &c, 1);
	}
	if (!bad && fcntl(fd, F_SETFL, 0) != 0)
		bad = errno;
	FILE *f = bad ? NULL : fdopen(fd, "rb");

	bad = f || bad ? bad : errno;
	if (!f && fd >= 0)
		close(fd);
	errno = bad;
	return f;
}

bool file_is_regular(const char *path)
{
	struct stat st;

	return stat(path, &st) == 0 && S_ISREG(st.st_mode);
}

/* 0, or an errno. */
static int read_path(Buf *to, const char *path)
{
	FILE *f = strcmp(path, "-") == 0 ? stdin : open_to_read(path, to);
	const int bad = f ? read_all(to, f) : errno;

	if (f && f != stdin)
		fclose(f);
	return bad;
}

/* What can be read once is read once, and given to everyone who asks. */
typedef struct Stream {
	char *path;
	Buf text;
	int bad;
	struct Stream *next;
} Stream;

static const Stream *stream_read(const char *path)
{
	static Stream *known;
	Stream *s = known;

	while (s && strcmp(s->path, path) != 0)
		s = s->next;
	if (s)
		return s;
	s = calloc(1, sizeof *s);
	if (!s || !(s->path = strdup(path))) {
		free(s);
		return NULL;
	}
	s->bad = read_path(&s->text, path);
	s->next = known;
	known = s;
	return s;
}

char *file_read(const char *path, size_t *n)
{
	struct stat st;
	Buf b = { 0 };
	int bad;

	if (strcmp(path, "-") == 0 || (stat(path, &st) == 0 && S_ISFIFO(st.st_mode))) {
		const Stream *s = stream_read(path);

		bad = s ? s->bad : ENOMEM;
		if (!bad)
			buf_add(&b, buf_str(&s->text), s->text.n);
	} else {
		bad = read_path(&b, path);
	}
	if (bad) {
		buf_free(&b);
		errno = bad;
		return NULL;
	}
	buf_add(&b, "", 0);
	if (n)
		*n = b.n;
	return b.s;
}

static bool write_all(const char *path, const void *p, size_t n)
{
	FILE *f = fopen(path, "wb");
	bool ok = f && (n == 0 || fwrite(p, 1, n, f) == n);
	int err = errno;

	if (f && fclose(f) != 0) {
		ok = false;
		err = errno;
	}
	errno = err;
	return ok;
}

/* Through a link to what it names; a device or a pipe is written to, not replaced. */
bool file_write(const char *path, const void *p, size_t n)
{
	struct stat st;
	Buf tmp = { 0 };
	char *real = realpath(path, NULL);
	const char *to = real ? real : path;
	bool ok;

	if (real && stat(real, &st) == 0 && !S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode)) {
		ok = write_all(real, p, n);
		free(real);
		return ok;
	}
	buf_printf(&tmp, "%s.tmp%ld", to, (long)getpid());
	ok = write_all(buf_str(&tmp), p, n) && rename(buf_str(&tmp), to) == 0;
	const int err = errno;
	if (!ok)
		remove(buf_str(&tmp));
	buf_free(&tmp);
	free(real);
	errno = err;
	return ok;
}

/* The character at s and how many bytes it has; false: the first byte begins none. */
static bool utf8_char(const unsigned char *s, uint32_t *c, int *bytes)
{
	static const uint32_t least[] = { 0, 0, 0x80, 0x800, 0x10000 };
	const int n = *s < 0x80 ? 1 : *s < 0xc2 ? 0 : *s < 0xe0 ? 2 : *s < 0xf0 ? 3 : *s < 0xf5 ? 4 : 0;

	*bytes = 1;
	*c = n < 2 ? *s : *s & (0x7fu >> n);
	for (int i = 1; i < n; i++) {
		if ((s[i] & 0xc0) != 0x80)
			return false;
		*c = *c << 6 | (s[i] & 0x3fu);
	}
	if (!n || *c < least[n] || *c > 0x10ffff || (*c >= 0xd800 && *c < 0xe000))
		return false;
	*bytes = n;
	return true;
}

/* What turns the direction of the text behind it, breaks a line, or may not stand in XML. */
static bool is_unseen(uint32_t c)
{
	return (c >= 0x7f && c < 0xa0) || c == 0x61c || c == 0x200e || c == 0x200f || (c >= 0x2028 && c <= 0x202e) ||
	       (c >= 0x2066 && c <= 0x2069) || c == 0xfeff || (c & 0xfffe) == 0xfffe;
}

void buf_xml(Buf *b, const char *text)
{
	while (*text) {
		uint32_t c;
		int n;
		const bool valid = utf8_char((const unsigned char *)text, &c, &n);

		switch (*text) {
		case '&': buf_puts(b, "&amp;"); break;
		case '<': buf_puts(b, "&lt;"); break;
		case '>': buf_puts(b, "&gt;"); break;
		case '"': buf_puts(b, "&quot;"); break;
		case '\'': buf_puts(b, "&#39;"); break;
		default:
			if (!valid)
				buf_puts(b, "\xef\xbf\xbd");
			else if (is_unseen(c))
				buf_printf(b, "[U+%04X]", (unsigned)c);
			else if (c < ' ')
				buf_putc(b, ' ');
			else
				buf_add(b, text, (size_t)n);
		}
		text += n;
	}
}

/* ---- JSON ---- */

static bool follows(char c) { return (c & 0xC0) == 0x80; }

int json_char(const char *s, char to[8])
{
	const unsigned char *p = (const unsigned char *)s;
	const int n = *p == '\n' || *p == '\t' ? 0 : diag_plain_char(p);

	if (n) {
		const int slash = *s == '"' || *s == '\\';

		*to = '\\';
		memcpy(to + slash, s, (size_t)n);
		to[slash + n] = 0;
		return n;
	}
	if (*p < 0x80) {
		snprintf(to, 8, "\\u%04x", *p);
		return 1;
	}
	if (*p >= 0xC2 && *p < 0xE0 && follows(s[1])) {
		snprintf(to, 8, "\\u%04x", (unsigned)(*p & 0x1F) << 6 | (p[1] & 0x3F));
		return 2;
	}
	if (*p == 0xE2 && follows(s[1]) && follows(s[2])) {
		snprintf(to, 8, "\\u%04x", 0x2000u | (unsigned)(p[1] & 0x3F) << 6 | (p[2] & 0x3F));
		return 3;
	}
	memcpy(to, (const char[]){ *s, 0 }, 2); /* no UTF-8 */
	return 1;
}

void buf_json(Buf *b, const char *s)
{
	char c[8];

	buf_putc(b, '"');
	while (*s) {
		s += json_char(s, c);
		buf_puts(b, c);
	}
	buf_putc(b, '"');
}
