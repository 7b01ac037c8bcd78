/* tables: large looked-up tables at servers are partitioned by rows, so that several servers answer for one of them and share
 * its bytes and its update (PX-37: Parallax's option search_partitions). A step's time by the number p of pieces is
 *
 *     T(p) = b s + a (p - 1) + c      b: what pieces share: values on the busiest server's port, its update; s: its share of
 *                                         them, 1 / p up to the number of servers, beyond it that of the pieces it has
 *                                     a: what each piece costs everyone: a head to it, one from it
 *                                     c: the rest
 *
 * --partitions N takes N; auto samples T as the links and the touched rows have it, at p up to the servers and at multiples of
 * them, fits a, b and c by least squares, and takes the p for which the fit is least: about sqrt(b / a), no more than servers. Pieces end between
 * blocks of rows (type_block_rows), so that norms have the bits of the whole table; they are equal but for one block.
 *
 * Reads Param.sync, the lookups, links of the cluster; writes Param.pieces, which servers.c takes. */
#include <fnmatch.h>
#include <math.h>
#include "servers.h"
#include "tables.h"

enum { SAMPLES = 64 };

static int64_t blocks_of(const Value *w)
{
	const int64_t rows = type_block_rows(&w->type);

	return rows ? (w->type.dim[0] + rows - 1) / rows : 1;
}

int table_pieces(const Value *w) { return (int)blocks_of(w); }

void table_piece(const Value *w, int n, int i, int64_t *row, int64_t *rows)
{
	const int64_t block = type_block_rows(&w->type), blocks = blocks_of(w), all = w->type.dim[0];
	const int64_t end = (i + 1) * blocks / n * block;

	*row = i * blocks / n * block;
	*rows = (end < all ? end : all) - *row;
}

/* ---- how many ---- */

static double share_of(int p, int servers) { return (double)((p + servers - 1) / servers) / p; }

bool table_fit(const int *p, const double *t, int n, int servers, double fit[3])
{
	double m[3][4] = { { 0 } };

	for (int k = 0; k < n; k++) {
		const double x[4] = { share_of(p[k], servers), p[k] - 1.0, 1, t[k] };
		for (int i = 0; i < 3; i++)
			for (int j = 0; j < 4; j++)
				m[i][j] += x[i] * x[j];
	}
	for (int i = 0; i < 3; i++) { /* Gauss and Jordan; the matrix is symmetric and positive where p are three */
		if (fabs(m[i][i]) < 1e-12)
			return false;
		for (int r = 0; r < 3; r++) {
			const double f = m[r][i] / m[i][i];
			for (int j = i; r != i && j < 4; j++)
				m[r][j] -= f * m[i][j];
		}
	}
	for (int i = 0; i < 3; i++)
		fit[i] = m[i][3] / m[i][i];
	return true;
}

double table_time(const double fit[3], int servers, int p)
{
	return fit[0] * share_of(p, servers) + fit[1] * (p - 1) + fit[2];
}

/* What a step of the table takes in p pieces at so many servers: values through the busiest server's port, its rows read and
 * written by the update, and two messages of every device for each piece. */
static double seconds(const Travel *t, const Cluster *c, int servers, int p)
{
	Link l = { .bandwidth = 8e9, .latency = 2e-6 };

	for (int r = 1; c && r < t->s->replicas; r++) {
		const Link k = cluster_link(c, t->s->device[0], t->s->device[r]);
		l = k.bandwidth < l.bandwidth || r == 1 ? k : l;
	}
	return share_of(p, servers) * (t->s->replicas * travel_ps(t) / l.bandwidth + 4 * (double)t->bytes / 10e9) +
	       2 * l.latency * p;
}

static int search(PassCx *cx, const Travel *t, int servers)
{
	const int most = table_pieces(t->w);
	int p[SAMPLES], n = 0, best = 1;
	double at[SAMPLES], fit[3];

	for (int k = 1; k <= most && n < SAMPLES && k <= 4 * servers; k++)
		if (k <= servers || k % servers == 0) {
			p[n] = k;
			at[n++] = seconds(t, cx->cluster, servers, k);
		}
	if (servers < 2 || n < 3 || !table_fit(p, at, n, servers, fit))
		return 1;
	for (int k = 0; k < n; k++)
		best = table_time(fit, servers, p[k]) < table_time(fit, servers, best) ? p[k] : best;
	if (cx->explain) {
		buf_printf(cx->explain,
			"tables: %s by rows over %d servers, ms of a step: T(p) = %.4g s + %.4g (p - 1) + %.4g",
			t->w->name, servers, 1e3 * fit[0], 1e3 * fit[1], 1e3 * fit[2]);
		for (int k = 0; k < n; k++)
			buf_printf(cx->explain, "%s %d: %.4g", k ? "," : "; sampled", p[k], 1e3 * at[k]);
		buf_printf(cx->explain, " -> %d\n", best);
	}
	return best;
}

static bool named(const Training *train, const Value *w)
{
	const char *of = train->comm.partitions_of;

	return !of || !fnmatch(of, w->param->onnx_name ? w->param->onnx_name : w->name, 0);
}

int table_cut(PassCx *cx, const Travel *t, int servers)
{
	const int64_t want = cx->train ? cx->train->comm.partitions : 0;

	if (!want || !t->rows || !named(cx->train, t->w))
		return 1;
	const int most = table_pieces(t->w);
	return want > most ? most : want > 0 ? (int)want : search(cx, t, servers);
}

bool pass_tables(Module *m, PassCx *cx)
{
	const Training *train = cx->train;
	const int64_t want = train ? train->comm.partitions : 0;
	int n, tables = 0;

	if (!want)
		return true;
	Travel *t = travel_list(m, cx, &n);
	int *host = NEWN(cx->scratch, int, m->schedule->ndevice + (cx->cluster ? cx->cluster->ndevice : 0) + 1);
	const int servers = train->comm.servers ? (int)train->comm.servers : server_hosts(m, cx->cluster, host);
	for (int i = 0; i < n; i++) {
		Value *w = t[i].w;
		if (w->param->sync != SYNC_PS || !t[i].rows || !named(train, w))
			continue;
		tables++;
		if (want > table_pieces(w))
			return diag_error(cx->d, FILELOC(m->file), 432,
				"--partitions %lld: '%s' has %lld rows, cut in blocks of %lld: at most %d "
				"pieces",
				(long long)want, w->name, (long long)w->type.dim[0],
				(long long)type_block_rows(&w->type), table_pieces(w));
		const int pieces = table_cut(cx, &t[i], servers);
		w->param->pieces = pieces > 1 ? pieces : 0;
	}
	if (!tables && want > 0)
		return diag_error(cx->d, FILELOC(m->file), 432,
			"--partitions %lld: no table%s%s%s is only looked up and lies at a server (--comm "
			"ps, hybrid or auto)",
			(long long)want, train->comm.partitions_of ? " '" : "",
			train->comm.partitions_of ? train->comm.partitions_of : "",
			train->comm.partitions_of ? "'" : "");
	return true;
}
