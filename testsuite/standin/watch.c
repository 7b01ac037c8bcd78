/* watch.c: the hooks of -fsanitize=thread, in place of libtsan's: they say which access is a kernel's, and by which of its threads,
 * and pass it on (watch.h). Copies of libc are taken over: no hook stands in front of what they touch. */
#include <link.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "standin.h"
#include "watch.h"

typedef struct range {
	uintptr_t at;
	size_t bytes;
} range;

static bool in(range r, const void *p) { return (uintptr_t)p - r.at < r.bytes; }

/* ---- where is what ---- */

static range code, data, library; /* of the program: what is only read, what is written; of the stand-in */
static uintptr_t bias;            /* where the program's addresses begin */

static int look_at(struct dl_phdr_info *o, size_t bytes, void *first)
{
	(void)bytes;
	bias = *(bool *)first ? o->dlpi_addr : bias;
	for (int i = 0; i < o->dlpi_phnum; i++) {
		const ElfW(Phdr) *h = &o->dlpi_phdr[i];
		const range r = { o->dlpi_addr + h->p_vaddr, h->p_memsz };

		if (h->p_type != PT_LOAD)
			continue;
		if (in(r, (const void *)(uintptr_t)look_at))
			library = r;
		if (*(bool *)first && h->p_flags & PF_W)
			data = r;
		else if (*(bool *)first)
			code = (range){ code.bytes ? code.at : r.at, r.at + r.bytes - (code.bytes ? code.at : r.at) };
	}
	*(bool *)first = false;
	return 0;
}

__attribute__((constructor)) static void look(void)
{
	bool first = true;

	dl_iterate_phdr(look_at, &first);
}

/* ---- what runs in this thread of the process ---- */

enum { NOBODY = ~0u };
static _Thread_local struct {
	const char *kernel;
	unsigned thread, threads;
	range stack, shared;
	const void *caller;
	bool inside; /* a hook is at work */
} now __attribute__((tls_model("initial-exec")));

const char *watch_kernel(void) { return now.kernel; }

bool watch_of_program(const void *address) { return in(code, address); }

const void *watch_caller(void) { return now.caller; }

void watch_begin(const char *kernel, unsigned threads, const void *shared, size_t bytes)
{
	now.kernel = kernel;
	now.thread = NOBODY;
	now.threads = threads;
	now.shared = (range){ (uintptr_t)shared, bytes };
	races_begin(kernel, threads);
}

void watch_block(unsigned block) { races_block(block); }

void watch_thread(unsigned t, const void *stack, size_t bytes)
{
	now.thread = t;
	now.stack = (range){ (uintptr_t)stack, bytes };
	races_thread(t);
}

void watch_leaves(void) { now.thread = NOBODY; }

void watch_barrier(unsigned first, unsigned n) { races_barrier(first, n); }

void watch_fence(void) { races_fence(); }

void watch_end(void)
{
	now.kernel = NULL;
	now.thread = NOBODY;
	races_end();
}

static void seen(const void *p, size_t bytes, watch_how how, const void *caller)
{
	if (now.inside || !bytes)
		return;
	now.caller = caller;
	if (!now.kernel) {
		now.inside = true;
		watch_access(p, bytes, how != WATCH_READS, how == WATCH_ATOMIC);
		now.inside = false;
		return;
	}
	if (now.thread == NOBODY || in(now.stack, p) || in(code, p))
		return;
	const bool shared = in(now.shared, p) || in(data, p);

	now.inside = true;
	races_access(p, bytes, how, shared, caller);
	if (!shared)
		watch_access(p, bytes, how != WATCH_READS, how == WATCH_ATOMIC);
	now.inside = false;
}

#define CALLER __builtin_return_address(0)

void watch_reads(const void *p, size_t bytes, const void *where) { seen(p, bytes, WATCH_READS, where); }

void watch_atomic(const void *p, size_t bytes, const void *where) { seen(p, bytes, WATCH_ATOMIC, where); }

__attribute__((weak)) void watch_access(const void *p, size_t bytes, bool write, bool atomic)
{
	(void)p;
	(void)bytes;
	(void)write;
	(void)atomic;
}

/* ---- hooks ---- */

#define HOOK(name, bytes, how) \
	API void __tsan_##name(const void *p); \
	API void __tsan_##name(const void *p) { seen(p, bytes, how, CALLER); }
/* clang-format off */
#define HOOKS(bytes) \
	HOOK(read##bytes, bytes, WATCH_READS) HOOK(write##bytes, bytes, WATCH_WRITES) \
	HOOK(unaligned_read##bytes, bytes, WATCH_READS) HOOK(unaligned_write##bytes, bytes, WATCH_WRITES) \
	HOOK(volatile_read##bytes, bytes, WATCH_READS) HOOK(volatile_write##bytes, bytes, WATCH_WRITES) \
	HOOK(unaligned_volatile_read##bytes, bytes, WATCH_READS) HOOK(unaligned_volatile_write##bytes, bytes, WATCH_WRITES)
HOOKS(1)
HOOKS(2)
HOOKS(4)
HOOKS(8)
HOOKS(16)
HOOK(vptr_read, sizeof(void *), WATCH_READS)
/* clang-format on */

#define EMPTY(name, ...) \
	API void __tsan_##name(__VA_ARGS__); \
	API void __tsan_##name(__VA_ARGS__)
EMPTY(init, void) {}
EMPTY(func_entry, void *p) { (void)p; }
EMPTY(func_exit, void) {}
EMPTY(vptr_update, void *p, void *v)
{
	(void)v;
	seen(p, sizeof p, WATCH_WRITES, CALLER);
}
EMPTY(read_range, const void *p, size_t bytes) { seen(p, bytes, WATCH_READS, CALLER); }
EMPTY(write_range, const void *p, size_t bytes) { seen(p, bytes, WATCH_WRITES, CALLER); }

/* Atomics of the host; those of kernels are device.h's. Every order is the strongest one. */
#define FETCH(bits, T, what) \
	API T __tsan_atomic##bits##_fetch_##what(volatile T *p, T v, int order); \
	API T __tsan_atomic##bits##_fetch_##what(volatile T *p, T v, int order) \
	{ \
		(void)order; \
		seen((const void *)p, sizeof *p, WATCH_ATOMIC, CALLER); \
		return __atomic_fetch_##what(p, v, __ATOMIC_SEQ_CST); \
	}
#define EXCHANGE(bits, T, how) \
	API int __tsan_atomic##bits##_compare_exchange_##how(volatile T *p, T *old, T v, int order, int otherwise); \
	API int __tsan_atomic##bits##_compare_exchange_##how(volatile T *p, T *old, T v, int order, int otherwise) \
	{ \
		(void)order; \
		(void)otherwise; \
		seen((const void *)p, sizeof *p, WATCH_ATOMIC, CALLER); \
		return __atomic_compare_exchange_n(p, old, v, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST); \
	}
/* clang-format off */
#define ATOMICS(bits, T) \
	API T __tsan_atomic##bits##_load(const volatile T *p, int order); \
	API T __tsan_atomic##bits##_load(const volatile T *p, int order) \
	{ \
		(void)order; \
		seen((const void *)p, sizeof *p, WATCH_ATOMIC, CALLER); \
		return __atomic_load_n(p, __ATOMIC_SEQ_CST); \
	} \
	API void __tsan_atomic##bits##_store(volatile T *p, T v, int order); \
	API void __tsan_atomic##bits##_store(volatile T *p, T v, int order) \
	{ \
		(void)order; \
		seen((const void *)p, sizeof *p, WATCH_ATOMIC, CALLER); \
		__atomic_store_n(p, v, __ATOMIC_SEQ_CST); \
	} \
	API T __tsan_atomic##bits##_exchange(volatile T *p, T v, int order); \
	API T __tsan_atomic##bits##_exchange(volatile T *p, T v, int order) \
	{ \
		(void)order; \
		seen((const void *)p, sizeof *p, WATCH_ATOMIC, CALLER); \
		return __atomic_exchange_n(p, v, __ATOMIC_SEQ_CST); \
	} \
	FETCH(bits, T, add) FETCH(bits, T, sub) FETCH(bits, T, and) FETCH(bits, T, or) FETCH(bits, T, xor) FETCH(bits, T, nand) \
	EXCHANGE(bits, T, strong) EXCHANGE(bits, T, weak)
ATOMICS(8, uint8_t)
ATOMICS(16, uint16_t)
ATOMICS(32, uint32_t)
ATOMICS(64, uint64_t)
/* clang-format on */
EMPTY(atomic_thread_fence, int order)
{
	(void)order;
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
}
EMPTY(atomic_signal_fence, int order)
{
	(void)order;
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
}

/* ---- libc's copies: of everybody but the stand-in, which tells what its libraries touch ---- */

static void copied(const void *p, size_t bytes, watch_how how, const void *caller)
{
	if (!in(library, caller))
		seen(p, bytes, how, caller);
}

static void *up(void *to, const void *from, size_t n)
{
	void *at = to;

	__asm__ volatile("rep movsb" : "+D"(at), "+S"(from), "+c"(n) : : "memory");
	return to;
}

API void *memcpy(void *restrict to, const void *restrict from, size_t n)
{
	copied(from, n, WATCH_READS, CALLER);
	copied(to, n, WATCH_WRITES, CALLER);
	return up(to, from, n);
}

API void *memmove(void *to, const void *from, size_t n)
{
	copied(from, n, WATCH_READS, CALLER);
	copied(to, n, WATCH_WRITES, CALLER);
	if ((uintptr_t)to - (uintptr_t)from >= n)
		return up(to, from, n);
	for (char *t = to; n--;)
		((volatile char *)t)[n] = ((const char *)from)[n];
	return to;
}

API void *memset(void *to, int byte, size_t n)
{
	void *at = to;

	copied(to, n, WATCH_WRITES, CALLER);
	__asm__ volatile("rep stosb" : "+D"(at), "+c"(n) : "a"(byte) : "memory");
	return to;
}

/* ---- what is said ---- */

void watch_say(const char *format, ...)
{
	const char *prefix = getenv("STANDIN_WATCH_LOG");
	char path[4096];
	FILE *f = stderr;
	va_list v;

	if (prefix && (size_t)snprintf(path, sizeof path, "%s.%d", prefix, (int)getpid()) < sizeof path) {
		f = fopen(path, "a");
		f = f ? f : stderr;
	}
	va_start(v, format);
	vfprintf(f, format, v);
	va_end(v);
	if (f != stderr)
		fclose(f);
}

void watch_memory(const void *p, char *s, size_t bytes)
{
	const void *start = NULL;
	size_t all = 0;
	const int piece = standin_piece(p, &start, &all);

	if (piece >= 0)
		snprintf(s, bytes, "byte %zu of piece %d of device memory, of %zu",
			(size_t)((const char *)p - (const char *)start), piece, all);
	else if (in(now.shared, p))
		snprintf(s, bytes, "byte %zu of dynamic shared memory, of %zu", (uintptr_t)p - now.shared.at,
			now.shared.bytes);
	else if (in(data, p))
		snprintf(s, bytes, "static shared memory, 0x%zx of the program", (uintptr_t)p - bias);
	else
		snprintf(s, bytes, "memory of the host");
}

/* addr2line says of each address the address, and then, line by line, where it is and into what that was inlined: kernels into device.h. */
void watch_where(int n, const void *const *address, char (*where)[WATCH_WHERE])
{
	char command[4096], line[512];
	size_t at = (size_t)snprintf(command, sizeof command, "addr2line -s -a -i -e /proc/%d/exe", (int)getpid());
	int k = -1;

	for (int i = 0; i < n; i++) {
		where[i][0] = 0;
		if (at + 24 < sizeof command)
			at += (size_t)snprintf(
				command + at, sizeof command - at, " 0x%zx", (uintptr_t)address[i] - 1 - bias);
	}
	FILE *f = popen(command, "r");
	while (f && fgets(line, sizeof line, f)) {
		line[strcspn(line, " \n")] = 0;
		if (!strncmp(line, "0x", 2)) {
			k++;
			continue;
		}
		const size_t used = k >= 0 && k < n ? strlen(where[k]) : WATCH_WHERE;
		if (used + 5 < WATCH_WHERE && !(used && !strncmp(line, "device.h:", 9)))
			snprintf(where[k] + used, WATCH_WHERE - used, "%s%.*s", used ? " in " : "",
				(int)(WATCH_WHERE - used) - 5, line);
	}
	if (f)
		pclose(f);
}
