#!/usr/bin/env bash
# Makes stand-ins, from this machine's own programs and their libraries, for the images that
# Dockerfile and deploy/docker name, in the engine of DOCKER_HOST: for machines that reach no registry.
# They have what the compose files use of the real ones: the programs, the users, the folders
# and a busybox for health checks. Only for a throw-away engine: their names are taken.
set -euo pipefail
cd "$(dirname "$0")/.."
export GOTOOLCHAIN=${GOTOOLCHAIN:-go1.27.3} # see the Makefile

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

cannot() { echo "standins: $*" >&2; exit 1; }
find_program() {
	PATH=$PATH:/usr/sbin:$(echo /usr/lib/postgresql/*/bin | tr ' ' :) command -v "$1" ||
		cannot "there is no $1 here (Debian: apt-get install redis-server haproxy postgresql prometheus busybox-static)"
}

# begin makes an empty root with busybox and a user.
begin() { # begin USER UID
	root=$work/root
	rm -rf "$root"
	mkdir -p "$root"/{bin,etc,tmp,proc,dev,sys,usr/bin,usr/local/bin}
	chmod 1777 "$root/tmp"
	cp "$(find_program busybox)" "$root/bin/busybox"
	for applet in sh wget cat mkdir chmod rm ls; do ln -s busybox "$root/bin/$applet"; done
	printf 'root:x:0:0::/:/bin/sh\n%s:x:%s:%s::/:/bin/sh\n' "$1" "$2" "$2" >"$root/etc/passwd"
	printf 'root:x:0:\n%s:x:%s:\n' "$1" "$2" >"$root/etc/group"
}
libraries() { # libraries FILE: what it is linked with
	{ ldd "$1" 2>/dev/null || true; } | sed -n 's|^[^/]*\(/[^ ]*\).*|\1|p' | while read -r lib; do cp -Ln --parents "$lib" "$root"; done
}
program() { # program NAME…: into /usr/bin, with their libraries
	local path
	for path in $(for name in "$@"; do find_program "$name"; done); do
		cp -L "$path" "$root/usr/bin/"
		libraries "$path"
	done
}
folder() { # folder USER-ID PATH
	mkdir -p "$root$2"
	chown "$1:$1" "$root$2"
}
finish() { # finish IMAGE VERSION CHANGE…
	local image=$1 version=$2 changes=(--change 'ENV PATH=/usr/local/bin:/usr/bin:/bin')
	shift 2
	for change in "$@"; do changes+=(--change "$change"); done
	tar -C "$root" -c . | docker import "${changes[@]}" - "$image" >/dev/null
	echo "$image <- $version"
}

# The patched Go, and as its only source of modules those that go.mod names.
make_golang() {
	local goroot version
	begin nobody 65534
	goroot=$(go env GOROOT)
	version=$(go env GOVERSION)
	mkdir -p "$root/usr/local/go" "$root/etc/ssl/certs" "$root/root"
	cp -r "$goroot"/{VERSION,go.env,bin,pkg,src,lib} "$root/usr/local/go/"
	GOPROXY=file://$(go env GOMODCACHE)/cache/download,$(go env GOPROXY) GOFLAGS=-modcacherw GOMODCACHE=$work/modules GOTOOLCHAIN=local "$goroot/bin/go" mod download
	mv "$work/modules/cache/download" "$root/proxy"
	cp -L /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/"
	finish "golang:${version#go}-bookworm" "$version" 'ENV PATH=/usr/local/go/bin:/usr/local/bin:/usr/bin:/bin' \
		'ENV GOPROXY=file:///proxy' 'ENV GOSUMDB=off' 'ENV HOME=/root'
}

make_redis() {
	begin redis 999
	program redis-server redis-cli
	folder 999 /data
	finish redis:7-alpine "$(redis-server --version | cut -d' ' -f1-3)" 'WORKDIR /data' 'CMD ["redis-server"]'
}

make_haproxy() {
	begin haproxy 99
	program haproxy
	finish haproxy:2.6-alpine "$("$(find_program haproxy)" -v | head -n 1 | cut -d' ' -f1-3)" 'USER haproxy' \
		'CMD ["haproxy", "-W", "-db", "-f", "/usr/local/etc/haproxy/haproxy.cfg"]'
}

# Of the real image's entry point the part that makes the database.
make_postgres() {
	local bin lib from file
	begin postgres 70
	bin=$(dirname "$(readlink -f "$(find_program postgres)")")
	lib=$(dirname "$bin")
	for from in "$lib" "/usr/share/postgresql/$(basename "$lib")" /usr/share/zoneinfo; do
		mkdir -p "$root$from"
		cp -a "$from/." "$root$from"
	done
	rm -rf "$root$lib"/lib/{bitcode,llvmjit*}
	for file in "$lib"/bin/* "$lib"/lib/*.so; do [[ $file == *llvmjit* ]] || libraries "$file"; done
	folder 70 /var/lib/postgresql/data
	folder 70 /var/run/postgresql
	chmod 3777 "$root/var/run/postgresql" # as in the real image
	cat >"$root/usr/local/bin/entrypoint" <<-'SCRIPT'
		#!/bin/sh
		set -e
		export PGDATA=/var/lib/postgresql/data
		if [ ! -s $PGDATA/PG_VERSION ]; then
			initdb --username="$POSTGRES_USER" --pwfile="$POSTGRES_PASSWORD_FILE" --auth-local=trust --auth-host=scram-sha-256 --locale=C --encoding=UTF8
			echo "host all all all scram-sha-256" >>$PGDATA/pg_hba.conf
			pg_ctl -w -o "-c listen_addresses= -k /var/run/postgresql" start
			psql -h /var/run/postgresql -U "$POSTGRES_USER" -d postgres -c "CREATE DATABASE \"$POSTGRES_DB\""
			pg_ctl -w -m fast stop
		fi
		exec postgres -c "listen_addresses=*" -k /var/run/postgresql
	SCRIPT
	chmod +x "$root/usr/local/bin/entrypoint"
	finish postgres:15-alpine "$("$bin/postgres" --version)" "ENV PATH=$bin:/usr/local/bin:/usr/bin:/bin" 'ENTRYPOINT ["entrypoint"]'
}

make_prometheus() {
	begin nobody 65534
	program prometheus promtool
	folder 65534 /prometheus
	finish prom/prometheus:v3.5.0 "$(prometheus --version 2>&1 | head -n 1 | cut -d' ' -f1-3)" 'ENTRYPOINT ["prometheus"]'
}

make_golang
make_redis
make_haproxy
make_postgres
make_prometheus
