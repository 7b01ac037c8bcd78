/* pdcc export CKPT --model MODEL.onnx -o OUT: the weights of a checkpoint as a safetensors file, or as the model with that file
 * beside it. CKPT: a folder of checkpoints (its newest whole one counts) or one of them. */
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include "runtime/state/ckptdir.h"
#include "runtime/state/safetensors.h"
#include "frontend/driver/compile/compile.h"
#include "frontend/onnx/onnx.h"

typedef struct Ckpt {
	const char *dir;
	int64_t step;
	ck_manifest m;
	st_file *part;
} Ckpt;

static bool ends(const char *s, const char *end)
{
	const size_t n = strlen(s), k = strlen(end);

	return n > k && strcmp(s + n - k, end) == 0;
}

/* A folder in it that has checkpoints, "" where there is none. */
static const char *checkpoints_below(Compile *c, const char *dir)
{
	const char *below = "";
	DIR *d = opendir(dir);

	for (struct dirent *e; d && (e = readdir(d));) {
		int n = 0;
		const char *path = arena_printf(c->a, "%s/%s", dir, e->d_name);

		if (e->d_name[0] == '.')
			continue;
		free(ck_steps(path, &n));
		if (n > 0 && (!*below || strcmp(path, below) < 0))
			below = path;
	}
	if (d)
		closedir(d);
	return below;
}

static bool none_whole(Compile *c, const char *dir)
{
	const char *below = checkpoints_below(c, dir);

	if (*below)
		return diag_error(c->d, FILELOC(c->model), 806,
			"there is no whole checkpoint in this folder; there are some in %s", below);
	return diag_error(c->d, FILELOC(c->model), 806,
		"there is no whole checkpoint in this folder; pdcc run DIR --ckpt CKPT writes some into CKPT");
}

/* Which checkpoint is meant; every byte of it is compared with its manifests. */
static bool choose(Compile *c, Ckpt *k)
{
	char why[CK_PATH + 300] = "", *dir = arena_str(c->a, c->model);
	int n = 0, at = 0;
	bool found = false;

	while (strlen(dir) > 1 && dir[strlen(dir) - 1] == '/')
		dir[strlen(dir) - 1] = 0;
	char *slash = strrchr(dir, '/'), *base = slash ? slash + 1 : dir;
	if (sscanf(base, "step-%" SCNd64 "%n", &k->step, &at) == 1 && at >= 15 && !base[at]) {
		base[-(slash != NULL)] = 0;
		k->dir = slash ? dir : ".";
		return ck_look(k->dir, k->step, true, &k->m, why, sizeof why) == CK_COMPLETE ||
		       diag_error(c->d, FILELOC(c->model), 806, "%s", why);
	}
	k->dir = dir;
	int64_t *step = ck_steps(dir, &n);
	if (n < 0)
		return diag_error(c->d, FILELOC(c->model), 806, "no folder of checkpoints: %s", strerror(errno));
	for (int i = 0; i < n && !found; i++) {
		k->step = step[i];
		ck_state s = ck_look(dir, step[i], true, &k->m, why, sizeof why);
		found = s == CK_COMPLETE;
		if (s == CK_DAMAGED)
			diag_warn(c->d, FILELOC(c->model), "checkpoint-damaged", "%s; passed over", why);
	}
	free(step);
	return found || none_whole(c, dir);
}

static bool open_parts(Compile *c, Ckpt *k)
{
	char path[CK_PATH];
	const char *why;

	k->part = NEWN(c->a, st_file, k->m.world);
	for (int r = 0; r < k->m.world; r++) {
		ck_part(path, k->dir, k->step, r, k->m.world, ".safetensors");
		if (!st_open(&k->part[r], path, &why))
			return diag_error(c->d, FILELOC(arena_str(c->a, path)), 806, "%s", why);
	}
	return true;
}

/* A table that servers have in pieces: its rows behind one another; NULL: some are missing. */
static const st_tensor *joined(Compile *c, const Ckpt *k, const Value *v, const char *name)
{
	const int64_t rows = v->type.rank ? v->type.dim[0] : 0, bytes = rows ? type_bytes(&v->type) / rows : 0;
	char *all = rows ? arena_alloc(c->a, (size_t)type_bytes(&v->type)) : NULL;
	st_tensor *x = NEW(c->a, st_tensor);

	for (int64_t row = 0, first; row < rows; row = first + x->dim[0]) {
		const st_tensor *t = st_find_rows(k->part, k->m.world, name, row, &first);
		if (!t || first != row || t->bytes != (size_t)(t->dim[0] * bytes) || row + t->dim[0] > rows)
			return NULL;
		memcpy(all + row * bytes, t->data, t->bytes);
		*x = *t;
	}
	x->data = all;
	x->bytes = (size_t)(rows * bytes);
	if (rows)
		x->dim[0] = rows;
	return rows ? x : NULL;
}

static const st_tensor *tensor_of(Compile *c, const Ckpt *k, const Value *v, const char *name)
{
	const st_tensor *t = NULL;

	for (int r = 0; r < k->m.world && !t; r++)
		t = st_find(&k->part[r], name);
	v->param->mapped = t != NULL;
	return t ? t : joined(c, k, v, name);
}

/* Every weight and statistic of the model gets the checkpoint's value. */
static bool take(Compile *c, const Ckpt *k)
{
	bool ok = true;
	int averages = 0, missing = 0;
	const char *first = NULL;

	for (int i = 0; i < c->m->nparam; i++) {
		const Value *v = c->m->param[i];
		const char *name = v->param->onnx_name ? v->param->onnx_name : v->name,
			   *want = st_dtype(dtype_onnx(v->type.dtype));
		const char *average = arena_printf(c->a, "%s:ema", name);
		const st_tensor *t = NULL;

		if (v->param->kind == PARAM_STATE)
			continue;
		if (c->o->averages && (t = tensor_of(c, k, v, average)))
			averages++;
		else
			t = tensor_of(c, k, v, name);
		if (!t) {
			first = first ? first : name;
			missing++;
			continue;
		}
		bool same = t->rank == v->type.rank && strcmp(t->dtype, want) == 0;
		for (int d = 0; same && d < t->rank; d++)
			same = t->dim[d] == v->type.dim[d];
		if (!same)
			ok = diag_error(c->d, FILELOC(c->model), 807,
				"tensor '%s' has %zu bytes of %s, the model %s wants %s", name, t->bytes, t->dtype,
				c->o->model, str_type(c->a, &v->type));
		v->param->data = t->data;
	}
	if (missing)
		ok = diag_error(c->d, FILELOC(c->model), 807,
			"no tensor '%s'%s, which the model %s needs; the checkpoint is of %s", first,
			missing > 1 ? arena_printf(c->a, " and %d others", missing - 1) : "", c->o->model, k->m.model);
	if (c->o->averages && !averages)
		ok = diag_error(c->d, FILELOC(c->model), 807,
			"--averages: the checkpoint has no moving averages; training keeps them with --ema");
	return ok;
}

static bool write_out(Compile *c)
{
	const char *out = c->o->out, *slash = strrchr(out, '/');

	if (ends(out, ".safetensors"))
		return weights_write(out, c->m->param, c->m->nparam, c->d);
	const char *data = arena_printf(c->a, "%.*s.safetensors", (int)strlen(out) - 5, out);
	const char *beside = slash ? data + (slash + 1 - out) : data;
	return weights_write(data, c->m->param, c->m->nparam, c->d) &&
	       onnx_write_trained(c->model, c->m, beside, out, c->d);
}

int export_main(Compile *c)
{
	Options *o = c->o;
	Ckpt k = { 0 };

	if (!o->model || !o->out || (!ends(o->out, ".onnx") && !ends(o->out, ".safetensors"))) {
		diag_error(c->d, NOLOC, 1, "pdcc export CKPT --model MODEL.onnx -o OUT.onnx, or OUT.safetensors");
		return EXIT_USAGE;
	}
	if (!choose(c, &k) || !open_parts(c, &k))
		return EXIT_INPUT;
	const char *ckpt = c->model;
	c->model = o->model;
	bool ok = compile_read(c);
	c->model = ckpt;
	ok = ok && take(c, &k);
	c->model = o->model;
	ok = ok && write_out(c);
	if (ok && !o->quiet)
		fprintf(stderr, "%s: the weights after step %" PRId64 " (%s, plan %s)\n", o->out, k.step, k.m.model,
			k.m.plan);
	for (int r = 0; k.part && r < k.m.world; r++)
		st_close(&k.part[r]);
	return ok ? 0 : EXIT_INPUT;
}
