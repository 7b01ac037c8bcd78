/* profile.json read and checked; times kept from earlier measurements. */
#ifndef PDCC_FRONTEND_PROFILE_FILE_H
#define PDCC_FRONTEND_PROFILE_FILE_H

#include "ir/base/diag.h"
#include "ir/text/profile.h"

/* NULL after E0420: no file, no profile, a record without a number or with a negative one; line and column are named. */
Profile *profile_load(Arena *a, const char *path, Diag *d);

/* Times by what they depend on: kind of node, threads, copies beside each other, device. A text file, one line each, in a folder. */
typedef struct TimeCache {
	Arena *a;
	const char *file;
	Map of;
	bool changed;
} TimeCache;

/* dir NULL: $XDG_CACHE_HOME/pdcc or ~/.cache/pdcc; "none": nothing is kept. */
void cache_open(TimeCache *t, Arena *a, const char *dir);
/* NULL: never measured. kind: node_kind_text. */
const ProfileNode *cache_get(const TimeCache *t, const char *kind, const Profile *of);
/* The mean of this and what was put before since opening. */
void cache_put(TimeCache *t, const char *kind, const Profile *of, const ProfileNode *r);
bool cache_close(TimeCache *t, Diag *d); /* writes what was put; a warning where that fails */

#endif
