#!/usr/bin/env bash
# Makes the services, clients and tools that the tests start themselves available on this machine.
#
# Prints, on standard output, nothing or one directory to put on PATH; tells what it
# does on standard error. Starts nothing, stops nothing. To add a service, add a line
# to `need`.
#
#   on PATH already     nothing is done
#   Debian, as root     apt-get install, without starting the service
#   Debian, otherwise   the packages are unpacked below .cache/services, nothing is installed
#   elsewhere           an error in CI; a warning otherwise: those tests are skipped
set -euo pipefail
cd "$(dirname "$0")/.."

# One line a service: the command the tests run, and the Debian package that has it.
need() {
	echo redis-server redis-server
	echo initdb postgresql
	echo postgres postgresql
	echo pgbouncer pgbouncer
	echo curl curl
	echo h2load nghttp2-client
	echo promtool prometheus
	echo openssl openssl
	echo python3 python3
	echo node nodejs
	echo haproxy haproxy
	echo systemd-analyze systemd
	echo chromium chromium
}

cache=$PWD/.cache/services
PATH=$PATH:/usr/sbin:$(echo /usr/lib/postgresql/*/bin | tr ' ' :) # where Debian keeps initdb; the tests look there too
say() { echo "services: $*" >&2; }

missing=()
while read -r command package; do
	command -v "$command" >/dev/null || [ -x "$cache/bin/$command" ] ||
		[[ " ${missing[*]} " == *" $package "* ]] || missing+=("$package")
done < <(need)

# An installation may start its service, which would take the port of one that already
# runs here: a policy of "not now" forbids that, for as long as the installation takes.
install_packages() {
	local policy=/usr/sbin/policy-rc.d
	if [ ! -e "$policy" ]; then
		trap 'rm -f /usr/sbin/policy-rc.d' EXIT
		printf '#!/bin/sh\nexit 101\n' >"$policy"
		chmod +x "$policy"
	fi
	export DEBIAN_FRONTEND=noninteractive
	apt-get update -q >&2 &&
		apt-get install -yq --no-install-recommends "$@" >&2
}

# Fetches the packages, and what they depend on that this machine lacks, with package
# lists of our own: this user may not refresh the system's.
unpack_packages() {
	local apt=(apt-get -q -o "Dir::State=$cache/apt/state" -o "Dir::Cache=$cache/apt/cache"
		-o Dir::State::status=/var/lib/dpkg/status -o Debug::NoLocking=true)
	mkdir -p "$cache/apt/state/lists/partial" "$cache/apt/cache/archives/partial" "$cache/root"
	"${apt[@]}" update >&2 &&
		"${apt[@]}" install -y --no-install-recommends --download-only "$@" >&2 || return 1
	local deb
	for deb in "$cache"/apt/cache/archives/*.deb; do
		dpkg -x "$deb" "$cache/root" || return 1
	done
	write_wrappers
}

# The unpacked commands need the libraries unpacked beside them.
write_wrappers() {
	local libraries command program
	mkdir -p "$cache/bin"
	libraries=$(find "$cache/root" -type d -path '*lib/*-linux-gnu*' | paste -sd:)
	while read -r command _; do
		program=$(find "$cache/root/usr/bin" "$cache/root/usr/sbin" "$cache"/root/usr/lib/postgresql/*/bin -name "$command" 2>/dev/null | head -n 1) || true
		[ -n "$program" ] || continue
		printf '#!/bin/sh\nLD_LIBRARY_PATH="%s${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" exec "%s" "$@"\n' \
			"$libraries" "$program" >"$cache/bin/$command"
		chmod +x "$cache/bin/$command"
	done < <(need)
}

if [ ${#missing[@]} -gt 0 ]; then
	got=no
	if command -v apt-get >/dev/null; then
		if [ "$(id -u)" = 0 ]; then
			say "installing ${missing[*]}"
			install_packages "${missing[@]}" && got=yes
		else
			say "unpacking ${missing[*]} below .cache/services (not root: nothing is installed)"
			unpack_packages "${missing[@]}" && got=yes
		fi
	fi
	if [ $got = no ]; then
		say "NOT AVAILABLE here: ${missing[*]}. Install them with this machine's package manager"
		say "(macOS: brew install redis postgresql pgbouncer nghttp2 prometheus haproxy; Fedora: dnf install redis postgresql-server pgbouncer nghttp2 golang-github-prometheus haproxy) so that their commands are on PATH."
		if [ "${CI:-}" = true ]; then
			say "in CI that is an error"
			exit 1
		fi
		say "THE TESTS THAT NEED THEM WILL BE SKIPPED."
	fi
fi

[ ! -d "$cache/bin" ] || echo "$cache/bin"
