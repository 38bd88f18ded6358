#!/usr/bin/env bash
# Runs every fuzz target of the tree in turn: scripts/fuzz.sh TIME (such as 60s).
#
# The go command sometimes fails a target with "context deadline exceeded" when the time is
# over while a worker is still busy, without having found anything. Only that is forgiven.
set -euo pipefail
cd "$(dirname "$0")/.."

log=$(mktemp)
trap 'rm -f "$log"' EXIT
while read -r package target; do
	echo "--- $target in ./$package"
	if go test -run '^$' -fuzz "^$target\$" -fuzztime "$1" -parallel 2 "./$package" >"$log" 2>&1; then
		tail -n 3 "$log"
	elif grep -q 'context deadline exceeded' "$log" && ! grep -qE 'Failing input written|panic:' "$log"; then
		echo "$target: out of time while a worker was busy; nothing was found"
	else
		cat "$log"
		exit 1
	fi
done < <(grep -rHo '^func Fuzz[A-Za-z0-9]*' --include='*_test.go' internal | sed 's|/[^/]*:func | |' | sort)
