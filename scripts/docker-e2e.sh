#!/usr/bin/env bash
# Builds the image and runs the compose files of deploy/docker on a real Docker engine: make docker-e2e
#
# Sends the README's curl lines through the entry, restarts, kills and loses what a
# cluster loses, and counts what the service executed. Not a part of .ci/run.
#
# The engine: the one that answers (DOCKER_HOST, or the usual socket); it pulls the images
# that the compose files name. Otherwise, as root, a dockerd of its own, in a temporary
# folder, which knows no registry: there scripts/standins.sh makes those images from this
# machine's programs. What was started is ended, what was made is removed (but, in an
# engine that was there, the images).
#
#   ENTRY_PORT=8180 make docker-e2e        where 8080 is taken
#   scripts/docker-e2e.sh with_postgres    only a part: with_redis, with_postgres, observed
set -euo pipefail
cd "$(dirname "$0")/.."

work=$(mktemp -d "${TMPDIR:-/tmp}/idemproxy-docker-e2e.XXXXXX")
parts=${*:-with_redis with_postgres observed}
port=${ENTRY_PORT:-8080}
entry=http://127.0.0.1:$port
project=idemproxy-e2e
engine='' # the pid of our dockerd
files=()  # of the project that runs

say() { printf '%s\n' "$*"; }
heading() { printf '\n== %s\n' "$*"; }
ok() { printf 'ok    %s\n' "$*"; }
cannot() { printf 'docker-e2e did not run: %s\n' "$*" >&2; exit 2; }
wrong() {
	printf 'WRONG %s\n' "$*" >&2
	[ ${#files[@]} = 0 ] || compose logs --tail 30 >&2 || true
	exit 1
}

cleanup() {
	local code=$?
	set +e
	[ ${#files[@]} = 0 ] || compose down -v -t 5 >>"$work/log" 2>&1
	[ -z "$engine" ] || stop_engine
	[ $code != 1 ] || { echo "the last lines of what Docker said:"; tail -n 20 "$work"/*log; } >&2
	rm -rf "$work"
	exit $code
}
trap cleanup EXIT
trap 'exit 130' INT TERM

# --- the engine

need_tools() {
	local tool
	for tool in docker curl; do
		command -v "$tool" >/dev/null || cannot "there is no $tool here (Debian: apt-get install docker.io docker-compose curl)"
	done
	if docker compose version >/dev/null 2>&1; then
		composer=(docker compose)
	elif command -v docker-compose >/dev/null; then
		composer=(docker-compose)
	else
		cannot "neither docker compose nor docker-compose is here (Debian: apt-get install docker-compose)"
	fi
	! (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null || cannot "port $port is taken here; give another one: ENTRY_PORT=8180 make docker-e2e"
}

start_engine() {
	if docker info >/dev/null 2>&1; then
		say "engine: the one that runs here"
		return
	fi
	[ -z "${DOCKER_HOST:-}" ] || cannot "nobody answers at DOCKER_HOST=$DOCKER_HOST"
	command -v dockerd >/dev/null || cannot "no engine answers, and there is no dockerd to start (Debian: apt-get install docker.io)"
	[ "$(id -u)" = 0 ] || cannot "no engine answers, and only root may start one"
	! ip link show docker0 >/dev/null 2>&1 || had_bridge=yes
	export DOCKER_HOST=unix://$work/docker.sock
	# Without iptables: it would leave its rules behind, and ports on loopback need none.
	dockerd --log-level warn --iptables=false --data-root "$work/root" --exec-root "$work/exec" \
		--pidfile "$work/dockerd.pid" -H "$DOCKER_HOST" >"$work/dockerd.log" 2>&1 &
	engine=$!
	for _ in $(seq 300); do
		! docker info >/dev/null 2>&1 || break
		kill -0 "$engine" 2>/dev/null || cannot "dockerd ended: $(tail -n 3 "$work/dockerd.log")"
		sleep 0.1
	done
	docker info >/dev/null || cannot "dockerd doesn't answer"
	say "engine: our own, in $work"
	heading "stand-ins for the images that a registry would have"
	scripts/standins.sh
}

# Without its engine a network's bridge would stay behind.
stop_engine() {
	local bridges
	bridges=$(docker network ls -q --filter driver=bridge --filter type=custom | sed 's/^/br-/')
	[ -n "${had_bridge:-}" ] || bridges+=" docker0"
	kill "$engine"
	while kill -0 "$engine" 2>/dev/null; do sleep 0.1; done
	for bridge in $bridges; do ip link delete "$bridge" 2>/dev/null; done
}

# compose runs the project of `files`. Old versions know no `name`, and the port may be
# another: then it reads copies, with paths as they stand in the files themselves.
compose() {
	local file args=(--project-directory deploy/docker -p "$project")
	for file in "${files[@]}"; do
		sed -e '/^name:/d' -e "s/127.0.0.1:8080:8080/127.0.0.1:$port:8080/" "deploy/docker/$file" >"$work/$file"
		args+=(-f "$work/$file")
	done
	"${composer[@]}" "${args[@]}" "$@"
}
quietly() { "$@" >>"$work/log" 2>&1; }
container() { compose ps -q "$1"; }
state() { docker inspect -f "{{.State.Health.Status}}" "$(container "$1")" 2>/dev/null; }

await() { # await WHAT COMMAND…: up to two minutes
	local what=$1
	shift
	for _ in $(seq 600); do
		! "$@" || return 0
		sleep 0.2
	done
	wrong "two minutes later: not $what"
}
is_healthy() { [ "$(state "$1")" = healthy ]; }
healthy() {
	local service
	for service in "$@"; do await "$service healthy" is_healthy "$service"; done
}

# build makes the image, with BuildKit where Docker has it. The builder of old knows no
# BUILDPLATFORM, which only matters to those who build for another kind of machine.
build() {
	if [ "${composer[0]}" = docker ]; then
		files=(compose.yaml)
		quietly compose build legacy || wrong "compose build"
		files=()
	elif docker buildx version >/dev/null 2>&1; then
		quietly docker build -t idemproxy:local . || wrong "docker build"
	else
		sed 's/--platform=$BUILDPLATFORM //' Dockerfile >"$work/Dockerfile"
		DOCKER_BUILDKIT=0 quietly docker build -t idemproxy:local -f "$work/Dockerfile" . || wrong "docker build"
		say "(built by the builder of old: there is no BuildKit here)"
	fi
}

# ready is how docs/deploying.md says to wait; old versions can't.
ready() {
	[ "${composer[0]}" != docker ] || quietly compose up -d --wait "$1"
	healthy "$1"
}

up() {
	files=("$@")
	quietly compose up -d || wrong "compose up of $*"
	healthy entry
	ok "up, in the order of health: $(compose ps -q | wc -l) containers"
	confined
}

# What the kernel says of their processes.
confined() {
	local pid status
	[ -n "$engine" ] || return 0 # another's engine may be on another machine
	for pid in $(compose ps -q | xargs docker inspect -f '{{.State.Pid}}'); do
		status=$(grep -E '^(Uid|CapEff|CapBnd|NoNewPrivs):' "/proc/$pid/status" | cut -f2 | paste -sd' ')
		[[ $status != 0\ * && $status == *" 0000000000000000 0000000000000000 1" ]] || wrong "user, capabilities and NoNewPrivs of $(cat "/proc/$pid/comm"): $status"
	done
	ok "no process is root, has a capability, or can get one"
}
down() {
	quietly compose down -v
	files=()
}

# --- requests

# readme prints the n-th curl line of the README's "One minute", for our port.
readme() { sed -n 's/^     \(curl .*\)/\1/p' README.md | sed -n "$1p" | sed "s|http://127.0.0.1:8080|$entry|g"; }
charges() { curl -sf "$entry/payments" | tr -dc 0-9; }
expect() { # expect WHAT PATTERN TEXT
	[[ $3 == *$2* ]] || wrong "$1: no \"$2\" in: $3"
	ok "$1"
}
counted() { [ "$(charges)" = "$1" ] || wrong "the service charged $(charges) times, want $1"; ok "the service charged $1 times"; }

readme_lines() {
	local first again
	first=$(bash -c "$(readme 1)" 2>/dev/null)
	expect "1. pays: 201" "201 Created" "$first"
	again=$(bash -c "$(readme 2)" 2>/dev/null)
	expect "2. the same line: a replay" "x-idempotent-replay: true" "$(tr '[:upper:]' '[:lower:]' <<<"$again")"
	[ "${first##*$'\n'}" = "${again##*$'\n'}" ] || wrong "the replay is another answer: $again"
	expect "3. the key for another payment: 422" '"code":"key_reuse"' "$(bash -c "$(readme 3)" 2>/dev/null)"
	again=$(bash -c "$(readme 4)" 2>/dev/null)
	expect "4. while the first runs: 409" '"code":"in_progress"' "$again"
	expect "   and then the first one's answer" '"amount":700' "$again"
	expect "5. no key: 400" '"code":"missing_key"' "$(bash -c "$(readme 5)" 2>/dev/null)"
	expect "6. six requests to pay, two charges" '{"charges":2}' "$(bash -c "$(readme 6)" 2>/dev/null)"
	paid=${first##*$'\n'}
}
replayed() {
	local again
	again=$(bash -c "$(readme 1)" 2>/dev/null)
	[ "${again##*$'\n'}" = "$paid" ] || wrong "$1: the first payment's retry got: $again"
	ok "$1: the first payment's retry gets its answer"
}

# caller sends one request after the other, each with a key of its own, each twice, until it
# is told to stop; what it got goes to a file: status, status of the retry, same answer?
caller() {
	local n=0 key a b
	while [ ! -e "$work/stop" ]; do
		key=load-$1-$((n += 1))
		a=$(curl -s -m 30 -w '\n%{http_code}' "$entry/payments" -H "Idempotency-Key: $key" -d '{"amount": 1}') || true
		b=$(curl -s -m 30 -w '\n%{http_code}' "$entry/payments" -H "Idempotency-Key: $key" -d '{"amount": 1}') || true
		[ "$a" = "$b" ] && echo "${a##*$'\n'} same" || echo "${a##*$'\n'} ${b##*$'\n'} DIFFERENT"
	done >"$work/caller.$1"
}

rolling_restart() {
	local before=$1 pids=() i keys failed
	rm -f "$work/stop" "$work"/caller.*
	for i in 1 2 3 4; do caller "$i" & pids+=($!); done
	quietly compose restart proxy-1
	ready proxy-1
	quietly compose up -d --no-deps --force-recreate proxy-2 # as with a new image
	ready proxy-2
	touch "$work/stop"
	wait "${pids[@]}"
	keys=$(cat "$work"/caller.* | wc -l)
	failed=$(cat "$work"/caller.* | grep -vc '^201 same$' || true)
	[ "$failed" = 0 ] || wrong "$failed of $keys failed: $(cat "$work"/caller.* | sort | uniq -c)"
	ok "under load proxy-1 restarted, then proxy-2 made anew: $keys keys sent twice, none failed"
	counted $((before + keys))
}

store_away() { # store_away SERVICE
	local answer
	quietly compose kill "$1"
	answer=$(curl -si -m 20 "$entry/payments" -H "Idempotency-Key: away" -d '{"amount": 1}')
	expect "$1 was killed: a new key gets 503" '"code":"store_unavailable"' "$answer"
	expect "   with Retry-After" "retry-after: " "$(tr '[:upper:]' '[:lower:]' <<<"$answer")"
	[ -n "$(charges)" ] || wrong "what is not guarded doesn't pass"
	ok "   what is not guarded passes"
	quietly compose up -d "$1"
	healthy "$1" proxy-1 proxy-2
	replayed "$1 is back"
}

proxy_crash() {
	local pid before
	[ -n "$engine" ] || return 0 # see confined
	before=$(docker inspect -f '{{.RestartCount}}' "$(container proxy-1)")
	pid=$(docker inspect -f '{{.State.Pid}}' "$(container proxy-1)")
	kill -9 "$pid"
	for i in 1 2 3 4; do replayed "proxy-1 crashed, request $i" >/dev/null; done
	came_back() { [ "$(docker inspect -f '{{.RestartCount}}' "$(container proxy-1)")" -gt "$before" ]; }
	await "started again" came_back
	healthy proxy-1
	ok "proxy-1 crashed (SIGKILL): the other answered at once, and Docker started it again"
}

with_redis() {
	heading "compose.yaml"
	up compose.yaml
	readme_lines
	replayed "before anything breaks"
	store_away redis
	counted 2
	proxy_crash
	rolling_restart 2
	replayed "after it all"
	down
}

with_postgres() {
	heading "compose.postgres.yaml"
	up compose.postgres.yaml
	readme_lines
	store_away postgres
	counted 2
	down
}

observed() {
	heading "compose.observability.yaml"
	for first in compose.postgres.yaml compose.yaml; do
		files=("$first" compose.observability.yaml)
		quietly compose config || wrong "compose config of ${files[*]}"
		ok "compose reads it together with $first"
	done
	quietly compose up -d prometheus entry
	healthy prometheus entry
	scraped() { [ "$(curl -sf 'http://127.0.0.1:9092/api/v1/query?query=sum(up)' | grep -c '"2"')" = 1 ]; }
	await "both scraped" scraped
	ok "Prometheus reads both proxies"
	expect "   and has our alerts" IdemproxyUnknownOutcome "$(curl -sf http://127.0.0.1:9092/api/v1/rules)"
	say "      (Grafana was not run)"
	down
}

need_tools
start_engine
say "docker $(docker version -f '{{.Client.Version}}'), engine $(docker version -f '{{.Server.Version}}'), compose $("${composer[@]}" version --short), $(uname -sr)"
heading "the image"
build
docker image inspect -f 'ok    {{.RepoTags}} {{.Size}} bytes, user {{.Config.User}}, entrypoint {{.Config.Entrypoint}}' idemproxy:local
for part in $parts; do "$part"; done
heading "all is as it should be, after ${SECONDS}s"
