#!/usr/bin/env bash
# Runs the chart on a real Kubernetes node, made here for it and taken away again: what is
# installed, and which faults it must survive, is test/deploy/kube. Linux, root, loopback only.
#
#   KUBE_BIN   folder with kube-apiserver, kube-controller-manager, kube-scheduler, kubelet and
#              etcd; without them there they are built (8 minutes, 3 GB; default .cache/kube)
set -euo pipefail
cd "$(dirname "$0")/.."

cannot() { echo "kube-e2e: CAN'T RUN HERE: $*" >&2; exit 1; }
[ "$(uname)" = Linux ] || cannot 'it needs Linux'
[ "$(id -u)" = 0 ] || cannot 'it needs root, for containers and a network bridge'
[ -d /usr/lib/cni ] || cannot "no CNI plug-ins in /usr/lib/cni: install Debian's containernetworking-plugins"
for tool in containerd:containerd runc:runc ctr:containerd ip:iproute2 iptables:iptables openssl:openssl curl:curl kubectl:kubernetes-client redis-server:redis-server; do
	command -v "${tool%%:*}" >/dev/null || cannot "no ${tool%%:*}: install the package ${tool##*:}"
done
! ip link show cni0 >/dev/null 2>&1 || cannot 'a bridge cni0 is there already: another cluster runs here, or is left (scripts/cluster/down.sh)'

bin=${KUBE_BIN:-$PWD/.cache/kube}
for program in kube-apiserver kube-controller-manager kube-scheduler kubelet etcd; do
	[ -x "$bin/$program" ] || { scripts/cluster/build.sh "$bin"; break; }
done

work=$(mktemp -d /tmp/idemproxy-kube-e2e.XXXXXX)
trap 'scripts/cluster/down.sh "$work/node" >/dev/null 2>&1 || true; ip link del cni0 2>/dev/null || true; rm -rf "$work"' EXIT

# The images: what the Dockerfile's last stage has, and Redis with its libraries.
make --no-print-directory build
mkdir -p "$work/proxy/var/lib/idemproxy" "$work/redis/tmp"
chmod 1777 "$work/redis/tmp"
cp bin/idemproxy "$work/proxy/"
redis=$(command -v redis-server)
for file in "$redis" $(ldd "$redis" | grep -o '/[^ ]*'); do
	mkdir -p "$work/redis$(dirname "$file")"
	cp -L "$file" "$work/redis$file"
done
scripts/cluster/pause.sh "$work/pause.tar"
scripts/cluster/image.sh "$work/proxy.tar" localhost/idemproxy:e2e "$work/proxy" 65532:65532 /idemproxy
scripts/cluster/image.sh "$work/redis.tar" localhost/redis:e2e "$work/redis" 999:999 "$redis"

# The tools: helm, the program of the steps, the Prometheus operator's types.
go -C test/deploy build -o "$work/helm" helm.sh/helm/v4/cmd/helm
go -C test/deploy build -o "$work/steps" ./kube
operator=$(go mod download -json github.com/prometheus-operator/prometheus-operator@v0.94.0 | sed -n 's/.*"Dir": "\(.*\)",/\1/p') ||
	cannot 'the Prometheus operator, whose types the chart uses, is not to be had as a Go module'
mkdir "$work/crds"
cp "$operator"/example/prometheus-operator-crd/*.yaml "$work/crds/"

# Out of reach of Ctrl-C, which would end containerd before its containers.
setsid --wait scripts/cluster/up.sh "$bin" "$work/node" "$work/pause.tar" "$work/proxy.tar" "$work/redis.tar"
export KUBECONFIG=$work/node/kc
printf '\n%s\nhelm %s\n%s\n%s\nidemproxy %s, image %s bytes\n' \
	"$(kubectl version | grep Server)" "$("$work/helm" version --short)" "$(containerd --version | cut -d' ' -f1,3)" "$(runc --version | head -n 1)" \
	"$(bin/idemproxy version)" "$(stat -c %s "$work/proxy.tar")"
"$work/steps" -helm "$work/helm" -root "$PWD" -scratch "$work" -dns 10.244.0.1:53
