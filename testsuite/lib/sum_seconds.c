/* sum_seconds.c: what the compiler's timing models (passes/cost/sumcost.c) say of sums, for testsuite/comm/timing:
 *
 *     sum_seconds MEMBERS ALPHA BETA GAMMA S CASE...      a CASE: BYTES:L, L sums of BYTES / L one after another
 *
 * Each member is a host. Prints `BYTES L SECONDS`, by the way that the runtime takes unless it is told another. */
#include <stdio.h>
#include <stdlib.h>
#include "passes/cost/sumcost.h"

int main(int argc, char **argv)
{
	if (argc < 6)
		return 2;
	const SumWay way = { atof(argv[2]), atof(argv[3]) };
	const SumModel m = {
		.within = way, .between = way, .gamma = atof(argv[4]), .sync = atof(argv[5]), .n = atoi(argv[1])
	};

	for (int i = 6; i < argc; i++) {
		double bytes;
		int cut;

		if (sscanf(argv[i], "%lf:%d", &bytes, &cut) != 2 || cut < 1)
			return 2;
		const SumBy by = sum_is_small(&m, bytes / cut) ? SUM_EVERYONE : SUM_RING;
		printf("%.0f %d %.9g\n", bytes, cut, cut * sum_seconds(&m, by, bytes / cut));
	}
	return 0;
}
