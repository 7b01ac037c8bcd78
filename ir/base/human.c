/* Numbers as people write them (human.h). printf's %g goes over to powers of ten where a number has more digits than asked for:
 * the unit changes before it does. */
#include "human.h"
#include <math.h>

static const char *in_unit(Arena *a, double seconds, int digits, double least_ms)
{
	if (seconds >= 999.5)
		return arena_printf(a, "%.0f s", seconds);
	if (seconds >= 0.9995)
		return arena_printf(a, "%.*g s", digits, seconds);
	if (seconds >= least_ms || seconds <= 0)
		return arena_printf(a, "%.*g ms", digits, seconds * 1e3);
	return seconds < 1e-10 ? "0 us" : arena_printf(a, "%.*g us", digits, seconds * 1e6);
}

const char *time_text(Arena *a, double seconds) { return seconds <= 0 ? "0 us" : in_unit(a, seconds, 4, 1e-3); }

const char *duration_text(Arena *a, double seconds)
{
	return seconds >= 2 * 86400  ? arena_printf(a, "%.1f days", seconds / 86400)
	       : seconds >= 2 * 3600 ? arena_printf(a, "%.1f h", seconds / 3600)
	       : seconds >= 120      ? arena_printf(a, "%.1f min", seconds / 60)
	                             : time_text(a, seconds);
}

const char *time_short(Arena *a, double seconds) { return in_unit(a, seconds, 3, 1e-6); }

const char *str_bytes(Arena *a, int64_t bytes)
{
	static const char *const unit[] = { "B", "KiB", "MiB", "GiB", "TiB" };
	double x = (double)bytes;
	int k = 0;

	for (; x >= 1024 && k < 4; k++)
		x /= 1024;
	return arena_printf(a, k ? "%.2f %s" : "%.0f %s", x, unit[k]);
}

const char *number_text(Arena *a, double x, int digits)
{
	if (x == 0 || fabs(x) >= pow(10, digits) - 0.5)
		return arena_printf(a, "%.0f", x);
	return fabs(x) >= 1e-4 ? arena_printf(a, "%.*g", digits, x)
	                       : arena_printf(a, "%.*f", digits - 1 - (int)floor(log10(fabs(x))), x);
}
