#!/bin/sh
# Takes part in the election of a group's coordinator, and works while it leads. Usage: session.sh GROUP
#
# curl holds the session open. If this script is killed so that it can't clean up (kill -9), curl and the work outlive it
# for a while: run it as a container's only process, with which they end.
set -u
group=${CONCLAVE_AGENT:-http://127.0.0.1:7374}/v1/groups/${1:?usage: session.sh GROUP}
session='' worker='' stream=''

ask() { curl -fs --noproxy '*' --max-time 1 "$@"; }

# work asks before each step, so that it ends with the tenure whatever else goes wrong. It must show the token to what it
# changes, all the same: between the question and the step anything may happen.
work() {
	echo "leads with token $1"
	while ask "$group/leader" | grep -q "\"token\":$1[,}]"; do
		echo "works with token $1"
		sleep 0.2
	done
	# The event that says why should be here at once, and end this. If the agent still believes that somebody works here, it
	# has to learn otherwise.
	sleep 1
	kill "$stream"
}

halt() {
	[ -n "$worker" ] || return 0
	kill "$worker" 2>/dev/null
	wait "$worker"
	worker=
	echo stops
}

number() { expr "$2" : ".*\"$1\":\([0-9]*\)"; }

# follow acts on the events of the session until it breaks.
follow() {
	while read -r field value; do
		case $field in
		event:) event=$value ;;
		data:)
			case $event in
			session) session=$(expr "$value" : '.*"session":"\([^"]*\)"') ;;
			lead)
				halt
				work "$(number token "$value")" &
				worker=$!
				;;
			stop)
				halt
				# Only now may the successor begin.
				ask -d "{\"term\":$(number term "$value")}" "$group/session/$session/stopped"
				;;
			lost) halt ;;
			esac
			;;
		esac
	done
	halt
}

end() {
	trap '' TERM
	halt
	[ -z "$stream" ] || kill "$stream" 2>/dev/null
	rm -rf "$dir"
}

dir=$(mktemp -d) || exit
trap end EXIT
trap 'exit 0' INT TERM
mkfifo "$dir/stream"
while :; do
	curl -fsN --noproxy '*' "$group/session" >"$dir/stream" &
	stream=$!
	follow <"$dir/stream"
	wait "$stream"
	stream=
	sleep 1
done
