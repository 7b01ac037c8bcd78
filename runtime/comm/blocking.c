/* blocking.c: messages of any size in the main thread, for what happens once a step or seldomer. */
#include "rt.h"

static void blocking(int peer, int tag, char *buf, size_t bytes, bool recv)
{
	const size_t most = (size_t)1 << 30;
	const int i = rt_peer(0);

	if (rt_alone)
		return;
	do {
		const size_t n = bytes < most ? bytes : most;

		rt_lock();
		if (recv)
			rt_post_recv(i, peer, tag, buf, n);
		else
			rt_post_send(i, peer, tag, buf, n);
		rt_unlock();
		rt_wait(i, 1);
		buf += n;
		bytes -= n;
	} while (bytes);
}

void rt_send(int peer, int tag, const void *buf, size_t bytes)
{
	blocking(peer, tag, (char *)(uintptr_t)buf, bytes, false);
}

void rt_recv(int peer, int tag, void *buf, size_t bytes) { blocking(peer, tag, buf, bytes, true); }

/* All members of a group: rank 0 does not hear each of a larger one. */
static void together(void)
{
	char token = 0, ours[RT_MEMBERS];

	if (rt_group() > 1)
		rt_tensor_all(ours, &token, 1);
}

/* All to rank 0 and back: it is for start and end, where the timeout matters more than speed. */
void rt_barrier(void)
{
	if (rt_alone)
		return;
	char token = 0;

	if (rt_program->rank == 0) {
		for (int r = 1; r < rt_program->world; r++)
			rt_recv(r, RT_TAG_FILE, &token, 1);
		together();
		for (int r = 1; r < rt_program->world; r++)
			rt_send(r, RT_TAG_FILE, &token, 1);
	} else {
		together();
		rt_send(0, RT_TAG_FILE, &token, 1);
		rt_recv(0, RT_TAG_FILE, &token, 1);
	}
}
