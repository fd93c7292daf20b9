#!/bin/sh
# Works while this process is coordinator. It has no session, so the agent doesn't notice its death. Usage: guard.sh GROUP
#
# Each step must either take less time than the agent promises (remainingMillis in the response, at most promiseMillis), or be
# harmless, or pass the token to the resource that it changes.
set -u
leader=${CONCLAVE_AGENT:-http://127.0.0.1:7374}/v1/groups/${1:?usage: guard.sh GROUP}/leader?promiseMillis=200

# The coordinator's agent responds with status 200. Others respond with 503, for which curl -f fails.
while sleep 0.2; do
	state=$(curl -fs --noproxy '*' --max-time 1 "$leader") || continue
	token=${state#*\"token\":}
	echo "works with token ${token%%[!0-9]*}"
done
