/* y = mask x / (1 - ratio); the mask is drawn by global sample and element: late[0] is the step's first sample, the
 * operand's first comes of_step behind it. A thread per few elements of a sample. x and y may be of 16 bits. */
#if MORE
/* y = that + more. */
#endif
namespace device::NAME {
static __global__ void run(TY *y, uint8_t *mask, const TX *x, const TY *more, const double *late, int64_t of_step,
	uint64_t id, int64_t member)
{
	const int64_t at = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) * V;

	if (at >= (int64_t)BATCH * EACH)
		return;
	const uint64_t stream = pd_random_stream(SEED, id, (uint64_t)((int64_t)late[0] + of_step + at / EACH));
	const pd_vec<TX, V> in = pd_read<V>(x + at);
#if MORE
	const pd_vec<TY, V> other = pd_read<V>(more + at);
#endif
	pd_vec<TY, V> out;
#if BY_VECTOR
	const int64_t i = at % EACH, of = ELEMENT;
	const pd_vec<uint8_t, V> kept = pd_kept<V>(stream, (uint64_t)(of / WIDTH), WIDTH, (uint64_t)(of % WIDTH), DROPPED);
#else
	pd_vec<uint8_t, V> kept;

	PD_UNROLL
	for (int u = 0; u < V; u++) {
		const int64_t i = at % EACH + u, e = ELEMENT;

		kept.v[u] = pd_random_four(stream, (uint64_t)(e / WIDTH), WIDTH, (uint64_t)(e % WIDTH)) >= DROPPED;
	}
#endif

	PD_UNROLL
	for (int u = 0; u < V; u++) {
		const T one = kept.v[u] ? LOAD(in.v[u]) * (T)SCALE : 0;
#if MORE
		out.v[u] = STORE(LOAD_MORE(other.v[u]) + one);
#else
		out.v[u] = STORE(one);
#endif
	}
	pd_write(mask + at, kept);
	pd_write(y + at, out);
	(void)more;
	(void)member;
}

#if EVALUATES
static __global__ void pass(TY *y, const TX *x, const TY *more)
{
	const int64_t at = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;

	if (at < (int64_t)BATCH * EACH)
#if MORE
		y[at] = STORE(LOAD_MORE(more[at]) + LOAD(x[at]));
#else
		y[at] = STORE(LOAD(x[at]));
#endif
	(void)more;
}

#endif
static void late(double *to)
{
	to[0] = (double)pd_sample(0);
}
}

PD_HOST void NAME(TY *y, uint8_t *mask, const TX *x,
#if MORE
	const TY *more,
#endif
	int64_t of_step, uint64_t id)
{
#if !MORE
	const TY *more = nullptr;
#endif
#if PARTS
	const int64_t member = pd_member();
#else
	const int64_t member = 0;
#endif

#if EVALUATES
	if (pd_evaluating()) {
		PD_LAUNCH(device::NAME::pass, pd_blocks((int64_t)BATCH * EACH, 256), 256, 0, y, x, more);
		return;
	}
#endif
	PD_LAUNCH(device::NAME::run, pd_blocks((int64_t)BATCH * EACH / V, 256), 256, 0, y, mask, x, more, pd_late(device::NAME::late, 1),
	          of_step, id, member);
}
