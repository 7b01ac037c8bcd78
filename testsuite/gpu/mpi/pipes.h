/* pipes.h: what the processes of a run share: a pipe from every rank to every rank. */
#ifndef PIPES_H
#define PIPES_H

#include <stdatomic.h>
#include <stdint.h>

enum { ROOM = 1 << 19 }; /* bytes that may be under way from one rank to another */

struct pipe {
	_Alignas(64) _Atomic uint64_t written;
	_Alignas(64) _Atomic uint64_t read;
	_Alignas(64) char bytes[ROOM];
};

#endif
