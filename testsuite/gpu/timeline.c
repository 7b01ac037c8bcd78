// What the GPU did, when: CUDA loads this into a program that CUDA_INJECTION64_PATH names it to, CUPTI tells it of every
// kernel, copy and fill (those of CUDA graphs too), and TIMELINE gets a line of each: start and end in ns, stream, name.
// Built by timeline.py where the GPU is.
#include <cupti.h>
#include <stdio.h>
#include <stdlib.h>

static FILE *out;

static void give(uint8_t **buffer, size_t *size, size_t *most)
{
	*size = 4 << 20;
	*most = 0;
	if (posix_memalign((void **)buffer, 8, *size))
		*buffer = NULL;
}

// Kernel9 and Memcpy5 are what CUDA 12 has; those of CUDA 13 begin like them.
static void take(CUcontext context, uint32_t stream, uint8_t *buffer, size_t size, size_t valid)
{
	(void)context;
	(void)stream;
	(void)size;
	for (CUpti_Activity *r = NULL; out && cuptiActivityGetNextRecord(buffer, valid, &r) == CUPTI_SUCCESS;) {
		if (r->kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) {
			const CUpti_ActivityKernel9 *k = (void *)r;
			fprintf(out, "%llu %llu %u %s\n", (unsigned long long)k->start, (unsigned long long)k->end,
				k->streamId, k->name);
		} else if (r->kind == CUPTI_ACTIVITY_KIND_MEMCPY) {
			const CUpti_ActivityMemcpy5 *c = (void *)r;
			fprintf(out, "%llu %llu %u [copy, kind %u]\n", (unsigned long long)c->start,
				(unsigned long long)c->end, c->streamId, c->copyKind);
		} else if (r->kind == CUPTI_ACTIVITY_KIND_MEMSET) {
			const CUpti_ActivityMemset4 *m = (void *)r;
			fprintf(out, "%llu %llu %u [fill]\n", (unsigned long long)m->start, (unsigned long long)m->end,
				m->streamId);
		}
	}
	free(buffer);
}

static void done(void)
{
	cuptiActivityFlushAll(1);
	if (out)
		fclose(out);
}

int InitializeInjection(void)
{
	const char *path = getenv("TIMELINE");
	out = path ? fopen(path, "w") : NULL;
	if (!out || cuptiActivityRegisterCallbacks(give, take) != CUPTI_SUCCESS)
		return 0;
	cuptiActivityEnable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
	cuptiActivityEnable(CUPTI_ACTIVITY_KIND_MEMCPY);
	cuptiActivityEnable(CUPTI_ACTIVITY_KIND_MEMSET);
	atexit(done);
	return 1;
}
