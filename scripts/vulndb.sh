#!/usr/bin/env bash
# Lays a copy of the Go vulnerability database in .cache/vulndb, for govulncheck -db.
#
# The database is published as a module too, so nothing but the module proxy is needed.
# A copy is used for a day. When no newer one can be had: an error in CI or without an
# older copy, a warning otherwise.
set -euo pipefail
cd "$(dirname "$0")/.."

db=$PWD/.cache/vulndb
fresh() { [ -n "$(find "$db/.version" -mmin -1440 2>/dev/null)" ]; }

build() {
	local out version dir
	out=$(go mod download -json golang.org/x/vulndb@latest) || { echo "$out" >&2; return 1; }
	version=$(sed -n 's/.*"Version": "\(.*\)".*/\1/p' <<<"$out")
	dir=$(sed -n 's/.*"Dir": "\(.*\)".*/\1/p' <<<"$out")
	if [ "$version" != "$(cat "$db/.version" 2>/dev/null)" ]; then
		rm -rf "$db.new"
		GOFLAGS=-mod=readonly go -C "$dir" run ./cmd/indexdb -vulns "$dir/data/osv" -out "$db.new" || return 1
		rm -rf "$db"
		mv "$db.new" "$db"
	fi
	echo "$version" >"$db/.version"
	echo "vulndb: $version" >&2
}

fresh && exit 0
mkdir -p .cache
build && exit 0
if [ "${CI:-}" = true ] || [ ! -e "$db/.version" ]; then
	echo "vulndb: cannot get the vulnerability database" >&2
	exit 1
fi
echo "vulndb: cannot get a newer database; using $(cat "$db/.version")" >&2
