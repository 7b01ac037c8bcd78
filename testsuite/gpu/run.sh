#!/bin/sh
# Everything of the GPU target, checked and timed on a machine with an NVIDIA GPU that needs no network, no MPI and no pdcc.
#
#   testsuite/gpu/run.sh --pack FILE [--quick]     where pdcc is: emits all programs, runs them on standin/, packs them (pack.py)
#   testsuite/gpu/run.sh [options] FILE            where the GPU is: builds them, runs them, writes a report (check.py)
#
# Options of the second: --out DIR (report.md, log.txt; gpu-report), --only PART,... (machine build ops models bits amp
# sanitizer bench torch), --standin DIR (DIR is what standin/build.sh made: a dry run), --seconds N (540: no part begins
# later), --jobs N, --arch sm_90. Exit status 1: something failed; report.md lists it. README.md says what is needed.
here=$(cd "$(dirname "$0")" && pwd)
command -v python3 > /dev/null || { echo "run.sh: python3 is missing" >&2; exit 78; }
py=python3
if [ "$1" = --pack ]; then
	[ -x /usr/bin/python3 ] && py=/usr/bin/python3  # the one that Debian's packages belong to
	exec "$py" "$here/pack.py" "$@"
fi
exec "$py" "$here/check.py" "$@"
