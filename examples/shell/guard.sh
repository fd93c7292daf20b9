#!/bin/sh
# Works while this process leads, and holds nothing open: the agent doesn't learn when it dies. Usage: guard.sh GROUP
#
# A step must be shorter than what is left of the tenure (remainingMillis in the answer), or harmless, or show the token to
# what it changes.
set -u
leader=${CONCLAVE_AGENT:-http://127.0.0.1:7374}/v1/groups/${1:?usage: guard.sh GROUP}/leader

# The coordinator's agent answers 200; any other answers 503, which is a failure to curl -f.
while sleep 0.2; do
	state=$(curl -fs --noproxy '*' --max-time 1 "$leader") || continue
	token=${state#*\"token\":}
	echo "works with token ${token%%[!0-9]*}"
done
