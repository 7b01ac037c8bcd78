#!/bin/sh
# Everything of the GPU target, checked and timed on a machine with an NVIDIA GPU that needs no network, no MPI and no pdcc.
#
#   testsuite/gpu/run.sh --pack FILE [--quick]     where pdcc is: emits all programs, runs them on standin/, packs them (pack.py)
#   testsuite/gpu/run.sh [options] FILE            where the GPU is: builds them, runs them, writes a report (check.py)
#
# A call takes --seconds N (540) and 30 more at most. What it did is in OUT/state.json: exit status 75 means that some is left, and
# the next call goes on, also on another machine with that file, report.md and log.txt: while sh run.sh FILE; [ $? = 75 ]; do :; done
# Options: --out DIR (report.md, log.txt, state.json, operators.json; gpu-report), --work DIR (what is unpacked and built; OUT/work),
# --runtime DIR (a runtime/ in the place of the packed one: a fix is tried without packing; all is done anew),
# --only PART,... (ops amp models bits bench torch sanitizer), --again PART,...: what these parts gave is forgotten, --standin DIR (DIR
# is what standin/build.sh made: a dry run), --names PATTERN (of programs), --jobs N (compilers at once), --arch sm_90 (that of the first GPU). Exit status 1: all was
# done and something failed; report.md lists it. README.md says what is needed.
here=$(cd "$(dirname "$0")" && pwd)
command -v python3 > /dev/null || { echo "run.sh: python3 is missing" >&2; exit 78; }
py=python3
if [ "$1" = --pack ]; then
	[ -x /usr/bin/python3 ] && py=/usr/bin/python3  # the one that Debian's packages belong to
	exec "$py" "$here/pack.py" "$@"
fi
exec "$py" "$here/check.py" "$@"
