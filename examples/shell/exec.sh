#!/bin/sh
# Works while this process is coordinator. It needs conclave-agent in PATH. Usage: exec.sh GROUP
#
# conclave-agent exec runs the script again, only while the agent leads, and kills it and all that it has started before another
# process becomes coordinator.
set -u
if [ -z "${CONCLAVE_TOKEN:-}" ]; then
	exec conclave-agent exec --group "${1:?usage: exec.sh GROUP}" -- "$0" "$1"
fi

trap 'echo stops; exit 0' TERM
while :; do
	# Pass the token to the resource that this step changes; it must reject lower tokens.
	echo "works with token $CONCLAVE_TOKEN"
	sleep 0.2
done
