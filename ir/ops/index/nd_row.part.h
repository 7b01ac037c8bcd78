/* The row that update k's or block k's Q coordinates name; CHECK: -1 where they name none. */
int64_t row = 0;

for (int q = 0; q < Q; q++) {
	const int64_t r = ids[k * Q + q], at = r < 0 ? r + dim[q] : r;
#if CHECK
	row = row < 0 || at < 0 || at >= dim[q] ? -1 : row * dim[q] + at;
#else
	row = row * dim[q] + at;
#endif
}
