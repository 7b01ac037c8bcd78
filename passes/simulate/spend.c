/* Price and power of a plan's hosts. */
#include "spend.h"

SimSpend sim_spend(Arena *a, const Sim *s)
{
	const Cluster *c = s->model->c;
	double *busy = NEWN(a, double, c->nhost + 1);
	int *devices = NEWN(a, int, c->nhost + 1);
	bool *used = NEWN(a, bool, c->nhost + 1);
	SimSpend out = { 0 };

	for (int i = 0; i < c->ndevice; i++)
		devices[c->device[i].host]++;
	for (int r = 0; r < s->model->s->ndevice; r++) {
		const int host = c->device[s->model->device[r]].host;

		used[host] = true;
		busy[host] += s->step > 0 ? s->busy[r] / s->step : 0;
	}
	for (int h = 0; h < c->nhost; h++) {
		const Host *x = &c->host[h];

		if (!used[h])
			continue;
		out.hosts++;
		out.price = out.price < 0 || !(x->price > 0) ? -1 : out.price + x->price;
		out.watts = out.watts < 0 || !(x->power > 0)
		                    ? -1
		                    : out.watts + x->idle_power + (x->power - x->idle_power) * busy[h] / devices[h];
	}
	return out;
}
