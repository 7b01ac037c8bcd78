/* Trace Event Format, read by ui.perfetto.dev and chrome://tracing. Times in microseconds. Where several steps are shown
 * (asynchronous schedules) events say which step they belong to, and microbatches are numbered within it, as in traces of runs. */
#include <inttypes.h>
#include "timeline.h"

static const char *category(const SimSpan *x)
{
	static const char *const name[ACT_COUNT] = { [ACT_F] = "forward",
		[ACT_B] = "backward",
		[ACT_W] = "weights",
		[ACT_SYNC] = "communication",
		[ACT_UPDATE] = "update" };

	return name[x->kind] ? name[x->kind] : "message";
}

/* A message may still travel while the next one leaves: begin and end apart, joined by a number. */
static void put_span(Buf *b, Arena *a, const Sim *s, int i)
{
	const SimSpan *x = &s->span[i];
	const bool message = x->peer >= 0;

	buf_puts(b, ",\n{\"name\": ");
	buf_json(b, span_text(a, s, x));
	buf_printf(b, ", \"cat\": \"%s\", \"pid\": %d, \"tid\": 0, \"ts\": %.3f", category(x), x->rank, x->begin * 1e6);
	if (message)
		buf_printf(b, ", \"ph\": \"b\", \"id\": %d", i);
	else
		buf_printf(b, ", \"ph\": \"X\", \"dur\": %.3f", (x->end - x->begin) * 1e6);
	buf_printf(b, ", \"args\": {\"stage\": %d", x->stage);
	if (s->steps > 1 && x->mb >= 0)
		buf_printf(b, ", \"step\": %d, \"microbatch\": %d", x->mb / s->model->s->per_step,
			x->mb % s->model->s->per_step);
	else if (x->mb >= 0)
		buf_printf(b, ", \"microbatch\": %d", x->mb);
	else if (s->model->each && s->model->s->dev[x->rank].n) /* the same actions in every step */
		buf_printf(b, ", \"step\": %d", x->action / (s->model->s->dev[x->rank].n / s->steps));
	if (message)
		buf_printf(b, ", \"bytes\": %" PRId64 ", \"to\": %d", x->bytes, x->peer);
	buf_puts(b, "}}");
	if (!message)
		return;
	buf_puts(b, ",\n{\"name\": ");
	buf_json(b, span_text(a, s, x));
	buf_printf(b, ", \"cat\": \"%s\", \"pid\": %d, \"tid\": 0, \"ts\": %.3f, \"ph\": \"e\", \"id\": %d}",
		category(x), x->rank, x->end * 1e6, i);
}

void timeline_json(Buf *b, const Sim *s, const char *title)
{
	const Schedule *plan = s->model->s;
	Arena *a = arena_new();

	buf_puts(b, "{\"displayTimeUnit\": \"ms\", \"otherData\": {\"title\": ");
	buf_json(b, title);
	buf_printf(b, ", \"step_seconds\": %.9g, \"steps\": %d, \"bubble\": %.9g}, \"traceEvents\": [", s->each,
		s->steps, s->bubble);
	for (int t = 0, any = 0; t < plan->nstage; t++)
		for (int k = 0; k < plan->replicas[t]; k++, any = 1) {
			const int r = plan->device[t][k];
			bool named = false; /* a device is listed with its first stage */
			for (int u = 0; u < t; u++)
				named |= plan->device[u][0] == plan->device[t][0];
			if (named)
				continue;
			buf_printf(b,
				"%s\n{\"name\": \"process_name\", \"ph\": \"M\", \"pid\": %d, \"args\": {\"name\": ",
				any ? "," : "", r);
			buf_json(b, arena_printf(a, "device %d (%s), stage %d", r, device_text(s, r), t));
			buf_printf(b,
				"}},\n{\"name\": \"process_sort_index\", \"ph\": \"M\", \"pid\": %d, "
				"\"args\": {\"sort_index\": %d}}",
				r, r);
		}
	for (int i = 0; i < s->nspan; i++) {
		put_span(b, a, s, i);
		if (i % 1024 == 0)
			arena_reset(a);
	}
	for (int i = 0; i < s->nuse; i++)
		buf_printf(b,
			",\n{\"name\": \"%s\", \"ph\": \"C\", \"pid\": %d, \"ts\": %.3f, \"args\": {\"in use\": %" PRId64
			"}}",
			s->model->fixed ? "memory" : "slots", s->use[i].rank, s->use[i].time * 1e6,
			bytes_in_use(s, s->use[i].rank, s->use[i].held));
	buf_puts(b, "\n]}\n");
	arena_free(a);
}
