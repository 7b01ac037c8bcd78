/* loop.c: a training loop of one's own around an emitted program. It ends the run when the loss has not become better by
 * one per cent in the last 100 steps, and says what it decided.
 *
 *     pdcc samples/mlp/model.onnx --cluster samples/mlp/cluster.yaml -o out/mlp
 *     make -C out/mlp LOOP=$PWD/samples/loop/loop.c
 *     make -C out/mlp LOOP=$PWD/samples/loop/loop.c run ARGS="--steps 2000 --quiet"
 *
 * All ranks run this file. What they decide on must be the same on all of them, as loss and loss_ema are. */
#include <stdio.h>
#include "runtime/pd.h"

enum { PATIENCE = 100 };

int main(int argc, char **argv)
{
	const pd_program *p = pd_device();
	double best = INFINITY;
	int64_t at = 0;
	pd_metric m = { 0 };

	if (!pd_init(p, argc, argv))
		return pd_finalize();
	for (bool more = true; more && m.step - at < PATIENCE;) {
		more = pd_step();
		pd_metrics(&m);
		if (m.loss_ema < 0.99 * best) {
			best = m.loss_ema;
			at = m.step;
		}
	}
	if (p->rank == 0)
		printf("my loop ended after %lld of %lld steps, best average loss %.4f at step %lld\n",
			(long long)m.step, (long long)m.steps, best, (long long)at);
	return pd_finalize();
}
