/* gpu_timed_file.c: the file of ways to make products that a run has timed. A line is one way of one form on one kind of device by one
 * version of the library, and names all of these, so that plans, devices and versions may share a file. A line counts only if it is, letter
 * by letter, what this program would write; one that is not takes the whole file with it, for nobody knows what happened to the others. */
#include "gpu_rt.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LINE = 1024, MOST = 1 << 20 }; /* bytes: of a line, of the file */

static const char title[] =
	"# How products of matrices are made, as timed before step 0. Without this file they are timed again.\n";

static int line_of(const rt_timed *t, char text[LINE])
{
	char hex[129];

	for (int i = 0; i < 8; i++)
		snprintf(hex + (ptrdiff_t)16 * i, 17, "%016" PRIx64, t->way.algorithm[i]);
	return snprintf(text, LINE, "cublaslt=%" PRIu64 " us=%" PRId64 ".%03d bare=%d algorithm=%s form=%s device=%s\n",
		t->version, t->ns / 1000, (int)(t->ns % 1000), t->way.apart, hex, t->form, t->device);
}

static bool parse(const char *line, size_t n, rt_timed *t)
{
	char hex[129] = "", again[LINE], own[LINE];
	int thousandths = 0, bare = 0;

	*t = (rt_timed){ 0 };
	if (n >= LINE)
		return false;
	memcpy(own, line, n);
	own[n] = 0;
	if (sscanf(own,
		    "cublaslt=%18" SCNu64 " us=%12" SCNd64
		    ".%3d bare=%1d algorithm=%128[0-9a-f] form=%207[!-~] device=%255[ -~]",
		    &t->version, &t->ns, &thousandths, &bare, hex, t->form, t->device) != 7 ||
		strlen(hex) != 128)
		return false;
	t->ns = t->ns * 1000 + thousandths;
	t->way.apart = bare;
	for (int i = 8; i--; hex[(ptrdiff_t)16 * i] = 0)
		t->way.algorithm[i] = strtoull(hex + (ptrdiff_t)16 * i, NULL, 16);
	return line_of(t, again) == (int)n && !memcmp(again, own, n);
}

/* All of a file as text, to be freed; NULL: errno says why, 0: it is no text of a file. */
static char *text_of(const char *path)
{
	const int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC); /* a pipe is not waited for */
	struct stat st;
	char *text = NULL;

	if (fd < 0)
		return NULL;
	errno = 0;
	if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_size <= MOST) {
		text = rt_alloc((size_t)st.st_size + 1);
		if (read(fd, text, (size_t)st.st_size) != st.st_size || strlen(text) != (size_t)st.st_size) {
			free(text);
			text = NULL;
			errno = 0;
		}
	}
	close(fd);
	return text;
}

int rt_timed_read(const char *path, rt_timed **all, char *why, size_t room)
{
	char *text = text_of(path);
	int n = 0, lines = 1;

	*all = NULL;
	*why = 0;
	if (!text) {
		if (errno != ENOENT)
			snprintf(why, room, "%s", errno ? strerror(errno) : "it is no text of a run");
		return 0;
	}
	for (const char *p = text; *p; p++)
		lines += *p == '\n';
	*all = rt_alloc((size_t)lines * sizeof **all);
	const char *p = text;

	for (int k = 1; *p && !*why; k++) {
		const char *end = strchr(p, '\n');
		const size_t bytes = end ? (size_t)(end - p) + 1 : strlen(p);

		if (k == 1 ? bytes != sizeof title - 1 || strncmp(p, title, bytes) != 0
			   : !parse(p, bytes, &(*all)[n++]))
			snprintf(why, room, "line %d is none that a run writes", k);
		p += bytes;
	}
	free(text);
	return *why ? 0 : n;
}

bool rt_timed_write(const char *path, const rt_timed *all, int n)
{
	char part[4200], line[LINE];
	size_t bytes = sizeof title;

	snprintf(part, sizeof part, "%s.%ld", path, (long)getpid());
	unlink(part);
	const int fd = open(part, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
	FILE *f = fd < 0 ? NULL : fdopen(fd, "w");

	if (!f)
		return false;
	fputs(title, f);
	for (int i = 0; i < n && (bytes += (size_t)line_of(&all[i], line)) < MOST; i++)
		fputs(line, f);
	const bool bad = ferror(f);

	if (fclose(f) == 0 && !bad && rename(part, path) == 0)
		return true;
	const int e = errno;

	unlink(part);
	errno = e;
	return false;
}
