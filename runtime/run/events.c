/* events.c: TensorBoard event files: records of length, masked CRC-32C of it, an Event message in protobuf's wire format,
 * masked CRC-32C of that. Scalars only. A resumed run writes a file of its own, which says that later steps of others are
 * void (SessionLog START). */
#include "rt.h"
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static FILE *file;
static char path[4096];
static uint32_t table[256];

typedef struct bytes {
	unsigned char b[256];
	size_t n;
} bytes;

/* Castagnoli's polynomial, reflected. */
static uint32_t crc(const void *data, size_t n)
{
	const unsigned char *p = data;
	uint32_t c = 0xFFFFFFFFu;

	while (n--)
		c = table[(c ^ *p++) & 255] ^ c >> 8;
	return ~c;
}

static void make_table(void)
{
	for (uint32_t i = 0; i < 256; i++) {
		table[i] = i;
		for (int k = 0; k < 8; k++)
			table[i] = table[i] >> 1 ^ (table[i] & 1 ? 0x82F63B78u : 0);
	}
}

static void little(bytes *to, uint64_t v, int n)
{
	while (n--) {
		to->b[to->n++] = (unsigned char)v;
		v >>= 8;
	}
}

static void varint(bytes *to, uint64_t v)
{
	for (; v > 127; v >>= 7)
		to->b[to->n++] = (unsigned char)(v | 128);
	to->b[to->n++] = (unsigned char)v;
}

/* A field of a message: bytes of length n. */
static void text(bytes *to, int field, const void *s, size_t n)
{
	varint(to, (uint64_t)field << 3 | 2);
	varint(to, n);
	memcpy(to->b + to->n, s, n);
	to->n += n;
}

static void real(bytes *to, int field, double v)
{
	uint64_t bits;

	memcpy(&bits, &v, sizeof bits);
	varint(to, (uint64_t)field << 3 | 1);
	little(to, bits, 8);
}

static void put_record(const bytes *e)
{
	bytes head = { 0 }, tail = { 0 };
	const uint32_t c = crc(e->b, e->n);

	little(&head, e->n, 8);
	const uint32_t l = crc(head.b, 8);

	little(&head, (l >> 15 | l << 17) + 0xA282EAD8u, 4);
	little(&tail, (c >> 15 | c << 17) + 0xA282EAD8u, 4);
	fwrite(head.b, 1, head.n, file);
	fwrite(e->b, 1, e->n, file);
	fwrite(tail.b, 1, tail.n, file);
}

static bytes event(int64_t step)
{
	bytes e = { 0 };
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);
	real(&e, 1, (double)t.tv_sec + 1e-9 * (double)t.tv_nsec);
	if (step > 0) {
		varint(&e, 2 << 3);
		varint(&e, (uint64_t)step);
	}
	return e;
}

bool rt_events_open(const char *dir, int64_t step)
{
	char host[64] = "host";
	const bool made = mkdir(dir, 0777) == 0;

	make_table();
	gethostname(host, sizeof host - 1);
	if (!made && errno != EEXIST)
		rt_fail(RT_ERROR, "R406", "%s: %s", dir, strerror(errno));
	snprintf(path, sizeof path, "%s/events.out.tfevents.%lld.%s.%ld.0", dir, (long long)time(NULL), host,
		(long)getpid());
	file = fopen(path, "wb");
	if (!file)
		rt_fail(RT_ERROR, "R406", "%s: %s", path, strerror(errno));
	bytes e = event(0);

	text(&e, 3, "brain.Event:2", 13); /* file_version */
	put_record(&e);
	if (step > 0) {
		e = event(step + 1);
		text(&e, 7, "\10\1", 2); /* session_log: START */
		put_record(&e);
	}
	return made;
}

void rt_event(int64_t step, const char *tag, double v)
{
	bytes e = event(step), value = { 0 }, summary = { 0 };
	const float f = (float)v;
	uint32_t bits;

	if (!file)
		return;
	memcpy(&bits, &f, sizeof bits);
	text(&value, 1, tag, strlen(tag));
	varint(&value, 2 << 3 | 5); /* simple_value */
	little(&value, bits, 4);
	text(&summary, 1, value.b, value.n);
	text(&e, 5, summary.b, summary.n);
	put_record(&e);
}

void rt_events_flush(void)
{
	if (file && fflush(file))
		rt_fail(RT_ERROR, "R406", "%s: %s", path, strerror(errno));
}

void rt_events_close(void)
{
	if (file && fclose(file))
		rt_fail(RT_ERROR, "R406", "%s: %s", path, strerror(errno));
	file = NULL;
}
