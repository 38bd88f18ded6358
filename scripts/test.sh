#!/usr/bin/env bash
# Runs the tests: scripts/test.sh [go test arguments]. Without arguments, all of them.
#
# Services (redis-server, PostgreSQL) come from scripts/services.sh. The race detector needs a C
# compiler: without one the tests run without it, except in CI, where that is an error.
set -euo pipefail
cd "$(dirname "$0")/.."

services=$(scripts/services.sh)
[ -z "$services" ] || export PATH="$services:$PATH"

race=(-race)
cc=$(go env CC)
if ! command -v "${cc%% *}" >/dev/null; then
	if [ "${CI:-}" = true ]; then
		echo "test: no C compiler ($cc), which the race detector needs: install gcc" >&2
		exit 1
	fi
	echo "test: WITHOUT the race detector: it needs a C compiler, and there is no $cc here" >&2
	race=()
else
	export CGO_ENABLED=1
fi

[ $# = 0 ] || exec go test "${race[@]}" -shuffle=on "$@"

# One package at a time: those with real servers are busy enough, and sensitive to time.
go test "${race[@]}" -shuffle=on -p 1 ./...
# These run programs, and nothing of ours in themselves.
exec go -C test/deploy test -shuffle=on -p 1 ./...
