/* parts.h: tensors of which each replica has a part, cut into blocks for messages. A member's parts of all tensors, one after
 * another, are cut into blocks of so many bytes. */
#ifndef PARTS_H
#define PARTS_H

#include "rt.h"

typedef struct rt_parts {
	void *buf;
	const pd_part *part;
	int n;
	size_t size; /* of an element */
	bool add;    /* what arrives is added to what is there, as floats */
	void *own;   /* where the parts of member `self` lie (pd_part.own); NULL: in buf, with those of all others */
	int self;
} rt_parts;

/* The most blocks that a member has. */
int64_t rt_parts_blocks(const rt_parts *p, size_t most);
/* Of a block of a member's parts: its bytes; copied into `to`, which gives its bytes; put from where they arrived. */
size_t rt_parts_bytes(const rt_parts *p, int member, int64_t block, size_t most);
size_t rt_parts_take(const rt_parts *p, int member, int64_t block, void *to, size_t most);
void rt_parts_put(const rt_parts *p, int member, int64_t block, const void *from, size_t most);
/* What the replicas of the owner have parts of, and the whole of what the members of a tensor group have parts of, and replicas parts of
 * those, without what was added to it (pad); all of them call this, with what they have. NULL for all but the owner, and its first
 * member; and where value is what files have. */
char *rt_parts_whole(const pd_param *q, const char *part);
char *rt_joined(const pd_param *q, const char *value);
/* What files have of q, with the zeros of q->pad; in memory of its own. */
char *rt_padded(const pd_param *q, const char *stored);
/* Whether this rank is a replica of the owner. */
bool rt_parts_mine(const pd_param *q);

#endif
