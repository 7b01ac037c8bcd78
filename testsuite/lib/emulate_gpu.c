/* emulate_gpu.c: with emulate.c, what an emitted stage of a GPU program calls, for lib/emulate.py: the device's part of the runtime
 * (gpu_*.c, gpu_*.cu) is the program's, the rest stands here. Tensors lie on the device; em_put and em_get are the way there. */
#include "gpu_rt.h"
#include "gpu_alone.h"
#include <stdarg.h>
#include <stdlib.h>

static const pd_program program = { .flow = 1 }; /* losses are told as they are made */
const pd_program *rt_program = &program;
bool rt_virtual;

_Noreturn void rt_fail(int status, const char *code, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	fprintf(stderr, "%s: ", code);
	vfprintf(stderr, fmt, ap);
	fprintf(stderr, "\n");
	va_end(ap);
	exit(status);
}

void pd_counted(int *n) { (void)n; } /* no graphs here, which would have to know */

void *rt_alloc(size_t bytes) { return calloc(1, bytes); }

char *em_memory(size_t bytes)
{
	char *p = rt_device_memory(bytes, "the stage's arena");

	pd_fill(p, 0, bytes);
	rt_gpu_wait();
	return p;
}

void em_put(char *tensor, const char *host, size_t bytes)
{
	rt_gpu_put(tensor, host, bytes);
	rt_gpu_wait();
}

void em_get(char *host, const char *tensor, size_t bytes) { rt_gpu_get(host, tensor, bytes); }
