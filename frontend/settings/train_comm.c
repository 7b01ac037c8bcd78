/* How gradients travel: flags that are more than a word or a number. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "train.h"

bool training_compress(Arena *a, Training *t, const char *v, Diag *d)
{
	const char *comma = strchr(v, ',');
	int block = 128;
	char rest;

	if (comma && strcmp(comma, ",ef") == 0 && strncmp(v, "none", 4))
		v = arena_printf(a, "%.*s", (int)(comma - v), v);
	t->comm.compress.said = true;
	t->comm.compress.feedback = comma != NULL;
	t->comm.compress.if_faster = strncmp(v, "auto:", 5) == 0;
	v += t->comm.compress.if_faster ? 5 : 0;
	if (strncmp(v, "q8", 2) == 0 && (!v[2] || sscanf(v + 2, ":block=%d%c", &block, &rest) == 1)) {
		if (block < 16 || block > 32768 || block & (block - 1))
			return diag_error(d, NOLOC, 7,
				"--compress q8: the block is %d; it must be a power of two from 16 to 32768", block);
		t->comm.compress.codec = CODEC_Q8;
		t->comm.compress.block = block;
		return true;
	}
	t->comm.compress.block = 0;
	const int codec = setting_value(SET_OF_Codec, v);
	t->comm.compress.codec = codec < 0 ? CODEC_NONE : (Codec)codec;
	return (codec >= 0 && (codec != CODEC_NONE || !t->comm.compress.if_faster)) ||
	       diag_error(d, NOLOC, 7,
		       "--compress wants none, trunc16, bf16, q8 or q8:block=N, behind auto: or not, with ,ef or not, not '%s'",
		       v);
}

void training_comm(Training *t, CommFlag flag)
{
	const int comm = setting_value(SET_OF_Comm, setting_word(SET_OF_CommFlag, (int)flag));

	t->comm.by = comm < 0 ? COMM_PS : (Comm)comm;
	t->comm.by_sync = flag == COMM_FLAG_PS_SYNC ? SERVERS_SYNC
	                  : flag == COMM_FLAG_ASYNC ? SERVERS_ASYNC
	                                            : SERVERS_UNSAID;
}

bool training_partitions(Arena *a, Training *t, const char *v, Diag *d)
{
	const char *is = strrchr(v, '='), *n = is ? is + 1 : v;
	char *end;
	const long long pieces = strtoll(n, &end, 10);

	t->comm.partitions_of = is && is > v ? arena_printf(a, "%.*s", (int)(is - v), v) : NULL;
	t->comm.partitions = strcmp(n, "auto") == 0 ? -1 : pieces;
	if (t->comm.partitions < 0 ? *n == 'a' : end > n && !*end && pieces >= 1 && pieces <= 256)
		return true;
	return diag_error(
		d, NOLOC, 7, "--partitions wants auto or a whole number from 1 to 256, or PATTERN=N, not '%s'", v);
}
