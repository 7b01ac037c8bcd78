/* sums: what an AllReduce takes beside the links, by back end, as pdcc doctor --measure prints it. */
#include "cluster_run.h"

#define COUNT(x) ((int)(sizeof(x) / sizeof *(x)))

static void s_message(Yaml *y, const YNode *v, void *to) { ((SumCost *)to)->message = yaml_seconds(y, v, "message"); }
static void s_start(Yaml *y, const YNode *v, void *to) { ((SumCost *)to)->start = yaml_seconds(y, v, "start"); }
static void s_add(Yaml *y, const YNode *v, void *to) { ((SumCost *)to)->add = yaml_rate(y, v, "add"); }

static const YKey sum_keys[] = {
	{ "message", s_message },
	{ "start", s_start },
	{ "add", s_add },
};

static void backend(Yaml *y, const YNode *v, const char *what, SumCost *to)
{
	*to = (SumCost){ .message = -1, .start = -1 };
	yaml_map(y, v, what, sum_keys, COUNT(sum_keys), to);
	if (y->ok && (to->message < 0 || to->start < 0 || to->add <= 0))
		yaml_error(y, v, "%s needs 'message', 'start' and 'add'", what);
	to->said = y->ok;
}

static void b_cpu(Yaml *y, const YNode *v, void *to) { backend(y, v, "sums.cpu", &((Cluster *)to)->sums[0]); }
static void b_cuda(Yaml *y, const YNode *v, void *to) { backend(y, v, "sums.cuda", &((Cluster *)to)->sums[1]); }

static const YKey backend_keys[] = {
	{ "cpu", b_cpu },
	{ "cuda", b_cuda },
};

void cluster_sums(Yaml *y, const YNode *v, Cluster *c) { yaml_map(y, v, "sums", backend_keys, COUNT(backend_keys), c); }
