/* tensor.c: what the members of a tensor group tell each other. A group is `tensor` processes of one rank of the plan, which run
 * one program on parts of the same weights; member k of a rank talks with the members k of other ranks, and here with the
 * others of its own. Where ranks have unlike groups (pd_program.tensor_of), member k has what it is told of member k mod their number, and
 * tells those of the larger group that have it of k (rt_takers).
 *
 * A sum: each member has one part of the elements, to which the others send theirs; it adds them in the order of members and
 * sends the sum to all. So all members have the same bits, whatever arrives first. Small ones are exchanged whole. */
#include "rt.h"
#include <stdlib.h>
#include <string.h>

enum { SMALL = 4096, MOST = 1 << 30 }; /* bytes: exchanged whole; of one message */

int rt_member;

int rt_group(void) { return rt_program && rt_program->tensor > 1 ? rt_program->tensor : 1; }

int rt_group_of(int rank) { return rt_program->tensor_of ? rt_program->tensor_of[rank] : rt_group(); }

int rt_first_task(int rank)
{
	int first = 0;

	if (!rt_program->tensor_of)
		return rank * rt_group();
	for (int r = 0; r < rank; r++)
		first += rt_program->tensor_of[r];
	return first;
}

int rt_tasks(void) { return rt_first_task(rt_program->world); }

int rt_task_of(int peer)
{
	return peer < rt_program->world ? rt_first_task(peer) + rt_member % rt_group_of(peer)
	                                : rt_first_task(rt_program->rank) + peer - rt_program->world;
}

int rt_takers(int peer)
{
	if (peer >= rt_program->world)
		return 1;
	const int theirs = rt_group_of(peer), mine = rt_group();

	return rt_member < theirs ? (theirs - rt_member + mine - 1) / mine : 0;
}

static char *theirs; /* what others send, one behind the other */
static size_t room;
static int tag = RT_TAG_TENSOR; /* RT_TAG_FILE: what start, checkpoints and results move is not counted */

static char *incoming(size_t bytes)
{
	if (bytes > room) {
		free(theirs);
		theirs = rt_alloc(bytes);
		room = bytes;
	}
	return theirs;
}

static int member_peer(int k) { return rt_program->world + k; }

/* What goes to member k, and where what comes from it goes to. */
static struct {
	const char *send;
	char *recv;
	size_t nsend, nrecv;
} with[RT_MEMBERS];

/* All of that at once: a pair of requests per member. */
static void exchange(void)
{
	const int n = rt_group();

	rt_lock();
	for (int k = 0; k < n; k++) {
		const int i = rt_peer(member_peer(k));
		const size_t most = with[k].nsend > with[k].nrecv ? with[k].nsend : with[k].nrecv;

		if (k == rt_member)
			continue;
		if (most > MOST)
			rt_fail(RT_ERROR, "R105", "a part of %zu bytes is over the %d of one message of a tensor group",
				most, MOST);
		rt_post_recv(i, member_peer(k), tag, with[k].recv, with[k].nrecv);
		rt_post_send(i + 1, member_peer(k), tag, with[k].send, with[k].nsend);
	}
	rt_unlock();
	rt_wait(rt_peer(rt_program->world), 2 * n);
}

/* Everyone's `bytes` at mine to everyone: those of member k come to with[k].recv, in memory that the next call takes; mine are not
 * copied. */
static void tell_all(const void *mine, size_t bytes)
{
	const int n = rt_group();
	char *in = incoming(bytes * (size_t)n);

	for (int k = 0; k < n; k++) {
		with[k].send = mine;
		with[k].recv = in + bytes * (size_t)k;
		with[k].nsend = with[k].nrecv = bytes;
	}
	if (n > 1 && !rt_alone && bytes)
		exchange();
}

static void add(void *y, const void *x, int64_t n, bool f64)
{
	if (f64)
		for (int64_t i = 0; i < n; i++)
			((double *)y)[i] += ((const double *)x)[i];
	else
		for (int64_t i = 0; i < n; i++)
			((float *)y)[i] += ((const float *)x)[i];
}

/* Adds to y, which is mine, what the others sent, in the order of members. */
static void add_in_order(char *y, int64_t count, bool f64)
{
	const size_t bytes = (size_t)count * (f64 ? 8 : 4);
	char *first = rt_member ? with[0].recv : y;

	for (int k = 1; k < rt_group(); k++)
		add(first, k == rt_member ? y : with[k].recv, count, f64);
	if (first != y)
		memcpy(y, first, bytes);
}

/* Element at which part k begins. */
static int64_t part_at(int64_t count, int k) { return count / rt_group() * k + count % rt_group() * k / rt_group(); }

static void sum_parts(char *y, int64_t count, bool f64)
{
	const int n = rt_group();
	const size_t size = f64 ? 8 : 4;
	const int64_t mine = part_at(count, rt_member + 1) - part_at(count, rt_member);
	char *in = incoming((size_t)mine * size * (size_t)n), *own = y + (size_t)part_at(count, rt_member) * size;

	for (int k = 0; k < n; k++) {
		with[k].send = y + (size_t)part_at(count, k) * size;
		with[k].nsend = (size_t)(part_at(count, k + 1) - part_at(count, k)) * size;
		with[k].recv = in + (size_t)mine * size * (size_t)k;
		with[k].nrecv = (size_t)mine * size;
	}
	exchange();
	add_in_order(own, mine, f64);
	for (int k = 0; k < n; k++) {
		with[k].recv = y + (size_t)part_at(count, k) * size;
		with[k].nrecv = with[k].nsend;
		with[k].send = own;
		with[k].nsend = (size_t)mine * size;
	}
	exchange();
}

void pd_tensor_sum(void *y, const void *x, int64_t count, pd_dtype t)
{
	const bool f64 = t == PD_F64;
	const size_t bytes = (size_t)count * (f64 ? 8 : 4);

	if (y != x)
		memcpy(y, x, bytes);
	if (rt_group() == 1 || rt_alone || !count)
		return;
	rt_pause();
	rt_record("tensor sum", -1, -1, -1);
	if (bytes <= SMALL) {
		tell_all(y, bytes);
		add_in_order(y, count, f64);
	} else {
		sum_parts(y, count, f64);
	}
}

double pd_tensor_total(double mine)
{
	pd_tensor_sum(&mine, &mine, 1, PD_F64);
	return mine;
}

void pd_tensor_gather(void *y, const void *x, int64_t blocks, int64_t run)
{
	const size_t n = (size_t)rt_group();

	rt_pause();
	rt_record("tensor gather", -1, -1, -1);
	tell_all(x, (size_t)(blocks * run));
	for (int64_t b = 0; b < blocks; b++)
		for (size_t k = 0; k < n; k++)
			memcpy((char *)y + ((size_t)b * n + k) * (size_t)run,
				((int)k == rt_member ? (const char *)x : with[k].recv) + b * run, (size_t)run);
}

void pd_tensor_shard(void *y, const void *x, int64_t blocks, int64_t run)
{
	for (int64_t b = 0; b < blocks; b++)
		memcpy((char *)y + b * run, (const char *)x + (b * rt_group() + rt_member) * run, (size_t)run);
}

void pd_tensor_scatter(void *y, const void *x, int64_t blocks, int64_t run, pd_dtype t)
{
	const int n = rt_group();
	const size_t bytes = (size_t)(blocks * run);

	rt_pause();
	rt_record("tensor scatter", -1, -1, -1);
	pd_tensor_shard(y, x, blocks, run);
	if (n == 1 || rt_alone || !bytes)
		return;
	char *in = incoming(2 * bytes * (size_t)n), *out = in + bytes * (size_t)n;

	for (int k = 0; k < n; k++) {
		with[k].send = out + bytes * (size_t)k;
		with[k].recv = in + bytes * (size_t)k;
		with[k].nsend = with[k].nrecv = bytes;
		for (int64_t b = 0; b < blocks && k != rt_member; b++)
			memcpy(out + bytes * (size_t)k + b * run, (const char *)x + (b * n + k) * run, (size_t)run);
	}
	exchange();
	add_in_order(y, (int64_t)bytes / (t == PD_F64 ? 8 : 4), t == PD_F64);
}

int pd_member(void) { return rt_member; }

void *pd_tensor_room(size_t bytes)
{
	static char *own;
	static size_t has;

	if (bytes > has) {
		free(own);
		own = rt_alloc(bytes);
		has = bytes;
	}
	return own;
}

const void *pd_tensor_all(const void *mine, size_t bytes)
{
	const int n = rt_group();

	rt_pause();
	rt_record("tensor rows", -1, -1, -1);
	char *all = incoming(bytes * (size_t)n);
	tell_all(mine, bytes);
	for (int k = 0; k < n; k++)
		if (k == rt_member || rt_alone)
			memcpy(all + bytes * (size_t)k, mine, bytes);
	return all;
}

/* What member 0 has, to all. */
void rt_tensor_tell(void *what, size_t bytes)
{
	if (rt_group() == 1)
		return;
	tag = RT_TAG_FILE;
	tell_all(what, bytes);
	tag = RT_TAG_TENSOR;
	if (rt_member && !rt_alone)
		memcpy(what, with[0].recv, bytes);
}

/* What each member has, to all, in their order. */
void rt_tensor_all(void *all, const void *mine, size_t bytes)
{
	tag = RT_TAG_FILE;
	pd_tensor_gather(all, mine, 1, (int64_t)bytes);
	tag = RT_TAG_TENSOR;
}

/* The whole of a parameter from the parts of all members, in memory of its own; NULL for members that are not the first. */
char *rt_tensor_whole(const pd_param *q, const char *part, size_t bytes)
{
	int64_t blocks = q->blocks;
	char *whole = rt_alloc(bytes * (size_t)rt_group());

	for (int i = 0; i < q->axis; i++)
		blocks *= q->dim[i];
	tag = RT_TAG_FILE;
	pd_tensor_gather(whole, part, blocks, (int64_t)bytes / blocks);
	tag = RT_TAG_TENSOR;
	if (!rt_member)
		return whole;
	free(whole);
	return NULL;
}
