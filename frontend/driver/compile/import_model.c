/* The model is read as the settings say. */
#include "compile.h"
#include "frontend/onnx/onnx.h"

ImportOpt compile_import_opt(const Compile *c, int64_t micro)
{
	const Training *t = &c->o->t;

	return (ImportOpt){ .bind = t->data.bind,
		.nbind = t->data.nbind,
		.batch_axis = t->data.batch_axis,
		.nbatch_axis = t->data.nbatch_axis,
		.micro = micro,
		.init_random = t->model.init_random,
		.frozen_bn = t->model.batchnorm == BATCHNORM_FROZEN,
		.f64 = t->target.f64,
		.parameters = t->model.parameters,
		.nparameters = t->model.nparameters,
		.trainable = t->model.trainable,
		.ntrainable = t->model.ntrainable,
		.freeze = t->model.freeze,
		.nfreeze = t->model.nfreeze,
		.padding = t->model.padding,
		.npadding = t->model.npadding,
		.strict = c->o->strict,
		.keep_eval = c->eval };
}

Module *compile_import(Compile *c, int64_t micro)
{
	const ImportOpt io = compile_import_opt(c, micro);
	const bool quiet = c->d->quiet;

	c->d->quiet = true; /* notes were made of it when it was read first */
	Module *m = onnx_import(c->a, c->model, &io, c->d);
	c->d->quiet = quiet;
	if (m && !m->batch)
		m->batch = 1;
	return m;
}
