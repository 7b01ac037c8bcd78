#!/bin/sh
# build.sh DIR: an MPI for the processes of one machine: DIR/mpicc, DIR/mpirun, to stand first in PATH.
set -e
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$1"
cp "$here/mpi.h" "$here/mpicc" "$1"
flags="-std=c11 -D_GNU_SOURCE -O2 -Wall -Wextra -Wpedantic -Wshadow -Werror $CFLAGS"
# shellcheck disable=SC2086
${CC:-gcc} $flags -c -o "$1/mpi.o" "$here/mpi.c"
# shellcheck disable=SC2086
${CC:-gcc} $flags -o "$1/mpirun" "$here/mpirun.c"
chmod 755 "$1/mpicc"
