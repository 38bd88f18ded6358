#!/usr/bin/env bash
# Runs every fuzz target of the tree, two at a time: scripts/fuzz.sh TIME (such as 60s).
#
# The go command sometimes fails a target with "context deadline exceeded" when the time is
# over while a worker is still busy, without having found anything. Only that is forgiven.
set -euo pipefail
cd "$(dirname "$0")/.."

fuzz() { # fuzz TIME PACKAGE TARGET
	local log
	log=$(mktemp)
	if go test -run '^$' -fuzz "^$3\$" -fuzztime "$1" -parallel 1 "./$2" >"$log" 2>&1; then
		printf -- '--- %s in ./%s\n%s\n' "$3" "$2" "$(tail -n 3 "$log")"
	elif grep -q 'context deadline exceeded' "$log" && ! grep -qE 'Failing input written|panic:' "$log"; then
		printf -- '--- %s in ./%s\nout of time while a worker was busy; nothing was found\n' "$3" "$2"
	else
		printf -- '--- %s in ./%s FAILED\n%s\n' "$3" "$2" "$(cat "$log")"
		rm -f "$log"
		return 1
	fi
	rm -f "$log"
}
export -f fuzz

grep -rHo '^func Fuzz[A-Za-z0-9]*' --include='*_test.go' internal | sed 's|/[^/]*:func | |' | sort |
	xargs -P 2 -L 1 bash -euo pipefail -c 'fuzz "$@"' fuzz "$1"
