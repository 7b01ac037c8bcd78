/* device_local.c: messages between two stages of one device. They are copied as soon as both sides are
 * known: by the send where the receive was posted before, else by the receive. One thread, no MPI. */
#include "rt.h"

typedef struct side {
	void *buf;
	size_t bytes;
	int mb;
	bool waits; /* for the other side */
} side;

static side *sends, *receives; /* by channel and slot */

static int slots(void) { return rt_program->slots; }

void rt_local_setup(const pd_program *p)
{
	sends = rt_alloc((size_t)p->channels * (size_t)p->slots * sizeof *sends);
	receives = rt_alloc((size_t)p->channels * (size_t)p->slots * sizeof *receives);
}

static side *at(side *table, int channel, int slot)
{
	if (channel < 0 || channel >= rt_program->channels || slot < 0 || slot >= slots())
		rt_fail(RT_ERROR, "R107",
			"channel %d, slot %d is outside the %d channels of %d slots of this plan of %d devices",
			channel, slot, rt_program->channels, rt_program->slots, rt_program->world);
	return &table[channel * slots() + slot];
}

/* The side that waits for microbatch mb on the channel; NULL: none. */
static side *partner(side *table, int channel, int mb)
{
	for (int i = 0; i < slots(); i++) {
		side *s = at(table, channel, i);

		if (s->waits && s->mb == mb)
			return s;
	}
	return NULL;
}

void rt_local(int channel, int slot, int mb, void *buf, size_t bytes, bool send)
{
	side *mine = at(send ? sends : receives, channel, slot);
	side *other = partner(send ? receives : sends, channel, mb);

	if (mine->waits)
		rt_fail(RT_ERROR, "R106",
			"request of channel %d, microbatch %d was posted before microbatch %d was waited for", channel,
			mb, mine->mb);
	if (!other) {
		*mine = (side){ buf, bytes, mb, true };
		return;
	}
	if (other->bytes != bytes)
		rt_fail(RT_LOST, "R104", "a message of %zu bytes was due from %s on channel %d, %zu bytes came",
			send ? other->bytes : bytes, rt_name(rt_program->rank), channel, send ? bytes : other->bytes);
	rt_local_copy(send ? other->buf : buf, send ? buf : other->buf, bytes);
	other->waits = false;
}

void rt_local_wait(int channel, int slot, bool send)
{
	const side *s = at(send ? sends : receives, channel, slot);

	if (s->waits)
		rt_fail(RT_LOST, "R102", "channel %d, microbatch %d: the other stage of this device never %s it",
			channel, s->mb, send ? "takes" : "sends");
}
