#!/bin/sh
# expect.sh STATUS PATTERN COMMAND...: the command must end with this exit status and print (to either stream) a line
# that matches; it gets 20 seconds.
want=$1 pattern=$2
shift 2
out=$(timeout 20 "$@" 2>&1)
got=$?
if [ "$got" != "$want" ]; then
	echo "$out"
	echo "exit status $got, wanted $want"
	exit 1
fi
echo "$out" | grep -qE "$pattern" || {
	echo "$out"
	echo "no line matches: $pattern"
	exit 1
}
