/* owners: the parameter server of a replicated stage of PipeDream (section 4, "distributed parameter server"), with --comm ps.
 * Every replica owns some of the stage's parameters: it is sent the gradients of those by all others, each as soon as their
 * backward has made it (wait-free backpropagation), adds them in the order of the replicas once all of a round are there,
 * updates, and sends the newest to all. Here only who owns what, as `owner` of the stage's AllReduce: by bytes, the largest
 * first to the replica that has least, so no replica has more than the mean and one parameter. Runtime: owned.c. */
#include <string.h>
#include "servers.h"
#include "ir/analysis.h"

bool stage_servers(const Module *m, const Training *t)
{
	return t && t->comm.by == COMM_PS && m->schedule && m->schedule->async && m->schedule->robin;
}

bool choose_owners(Node *sum, const Stage *s, PassCx *cx)
{
	const Value **w = NEWN(cx->scratch, const Value *, sum->nin);
	int64_t *load = NEWN(cx->scratch, int64_t, s->replicas), *owner = NEWN(cx->scratch, int64_t, sum->nin);

	if (strcmp(attr_str(sum, "codec"), "none"))
		return diag_error(cx->d, NOLOC, 430,
			"--comm ps: gradients go to the replica that owns them as they are; --compress %s packs "
			"those that go by AllReduce",
			attr_str(sum, "codec"));
	for (int i = 0; i < sum->nin; i++) {
		w[i] = gradient_of(sum->in[i]);
		owner[i] = -1;
		if (!w[i] || sum->in[i]->type.dtype != DT_f32)
			return diag_error(cx->d, NOLOC, 430, "--comm ps: the gradient of '%s' is %s; servers add f32",
				w[i] ? w[i]->name : sum->in[i]->name, dtype_name(sum->in[i]->type.dtype));
	}
	for (int left = sum->nin; left > 0;) {
		const Value *next = NULL;
		int to = 0;
		for (int i = 0; i < sum->nin; i++)
			if (owner[i] < 0 && (!next || type_numel(&w[i]->type) > type_numel(&next->type)))
				next = w[i];
		for (int r = 1; r < s->replicas; r++)
			to = load[r] < load[to] ? r : to;
		load[to] += type_numel(&next->type);
		for (int i = 0; i < sum->nin; i++) /* all parts of its gradient */
			if (w[i] == next) {
				owner[i] = to;
				left--;
			}
	}
	attr_set_ints(sum, "owner", sum->nin, owner);
	return true;
}
