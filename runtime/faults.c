/* faults.c: what a rank says when something goes wrong, and how tests make it go wrong. */
#include "rt.h"
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

void rt_point(int what)
{
	(void)what;
}
