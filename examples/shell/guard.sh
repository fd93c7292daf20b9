#!/bin/sh
# Works while this process is coordinator. It has no session, so the agent doesn't notice its death. Usage: guard.sh GROUP
#
# The agent promises that no other process becomes coordinator for remainingMillis, counted from the request. A response may take
# 150 ms, so each step must take less than 150 ms, or be harmless, or pass the token to the resource that it changes. In Available
# mode there is no promise: only the token helps.
set -u
leader=${CONCLAVE_AGENT:-http://127.0.0.1:7374}/v1/groups/${1:?usage: guard.sh GROUP}/leader?promiseMillis=400

# The coordinator's agent responds with status 200. Others respond with 503, for which curl -f fails.
while sleep 0.2; do
	state=$(curl -fs --noproxy '*' --max-time 0.15 "$leader") || continue
	remaining=${state#*\"remainingMillis\":}
	if [ "$remaining" != "$state" ] && [ "${remaining%%[!0-9]*}" -lt 300 ]; then continue; fi
	token=${state#*\"token\":}
	echo "works with token ${token%%[!0-9]*}"
done
