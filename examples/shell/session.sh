#!/bin/sh
# Takes part in the election of a group's coordinator, and works while it is coordinator. Usage: session.sh GROUP
#
# curl keeps the session open. If this script is killed by SIGKILL, it cannot stop curl and the work, which continue for a
# while. Therefore, run it as the main process of a container, so that they are killed, too.
set -u
group=${CONCLAVE_AGENT:-http://127.0.0.1:7374}/v1/groups/${1:?usage: session.sh GROUP}
session='' worker='' stream=''

ask() { curl -fs --noproxy '*' --max-time 1 "$@"; }

# mayAct queries the agent. A response may take 150 ms, so a step of another 50 ms needs 200 ms of the tenure. In Available mode,
# there is no remainingMillis.
mayAct() {
	state=$(curl -fs --noproxy '*' --max-time 0.15 "$group/leader?session=$session") || return
	case $state in *"\"token\":$1"[,}]*) ;; *) return 1 ;; esac
	remaining=${state#*\"remainingMillis\":}
	[ "$remaining" = "$state" ] || [ "${remaining%%[!0-9]*}" -ge 200 ]
}

# work queries the agent before each step, so that it ends with the tenure in any case. It must still pass the token to the
# resource that it changes, because the tenure may end between the query and the step. A single query may fail.
work() {
	echo "leads with token $1"
	while mayAct "$1" || mayAct "$1"; do
		echo "works with token $1"
		sleep 0.2
	done
	# The tenure has ended, and an event that stops this function should follow at once. Otherwise, the agent may assume
	# that the work continues, so end the session.
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

# follow handles the events of the session until the session ends.
follow() {
	while read -r field value; do
		case $field in
		event:) event=$value ;;
		data:)
			case $event in
			session)
				session=$(expr "$value" : '.*"session":"\([^"]*\)"')
				# This shows the agent that an application has opened the session.
				ask "$group/leader?session=$session" >/dev/null
				;;
			lead)
				halt
				work "$(number token "$value")" &
				worker=$!
				;;
			stop)
				halt
				# The successor starts only after this confirmation.
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
