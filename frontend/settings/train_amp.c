/* Mixed precision as train.yaml (amp:) and --amp say it: off, bf16, fp8, fp16, fp16:scale=65536,every=2000. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "train.h"

/* As who wrote it calls it: the key of a file, or the flag. */
static const char *called(Loc at) { return at.file ? "amp" : "--amp"; }

/* "scale=65536,every=2000": the scale of the loss at first, and the steps without overflow that double it. */
static bool settings(Training *t, const char *s, Loc at, Diag *d)
{
	while (*s) {
		const bool scale = !strncmp(s, "scale=", 6), every = !strncmp(s, "every=", 6);
		char *end = NULL;
		const double v = scale || every ? strtod(s + 6, &end) : 0;

		if (!end || end == s + 6 || (*end && *end != ',') || !(v >= 1 && v <= 0x1p60) || v != floor(v))
			return diag_error(d, at, 7, "%s fp16 takes scale=N and every=N, whole numbers from 1, not '%s'",
				called(at), s);
		if (scale)
			t->target.amp.scale = v;
		else
			t->target.amp.every = (int64_t)v;
		s = *end ? end + 1 : end;
	}
	return true;
}

bool training_amp(Training *t, const char *spec, Loc at, Diag *d)
{
	t->target.amp.scale = 0;
	t->target.amp.every = 0;
	const bool more = !strncmp(spec, "fp16:", 5);
	const int kind = more ? AMP_FP16 : setting_value(SET_OF_AmpKind, spec);

	t->target.amp.kind = kind < 0 ? AMP_OFF : (AmpKind)kind;
	if (more)
		return settings(t, spec + 5, at, d);
	if (kind >= 0)
		return true;
	const SettingWords w = setting_words(SET_OF_AmpKind);
	const char *near = diag_nearest(spec, w.word, w.n);

	return diag_error(d, at, 7, "%s wants off, bf16, fp16 or fp8, not '%s'%s%s%s", called(at), spec,
		near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
}
