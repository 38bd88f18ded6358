#!/usr/bin/env bash
# up.sh BIN WORK [image.tar...]: a single-node Kubernetes on loopback from the binaries in BIN, state in WORK.
set -u
B=$(cd "${1:?usage: up.sh BIN WORK [image.tar...]}" && pwd); W=$(mkdir -p "${2:?}/cni" "$2/etcd" && cd "$2" && pwd); shift 2
imgs=(); for t in "$@"; do imgs+=("$(realpath "$t")"); done
cd "$W" || exit 1
[ -f sa.key ] || openssl genrsa -out sa.key 2048 2>/dev/null
echo 'tok123,admin,admin,system:masters' > tokens.csv
cat > kc <<K
apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "https://127.0.0.1:16443", insecure-skip-tls-verify: true}}]
users: [{name: u, user: {token: tok123}}]
contexts: [{name: x, context: {cluster: c, user: u}}]
current-context: x
K
cat > containerd.toml <<K
version = 2
root = "$W/ctd-root"
state = "$W/ctd-state"
[grpc]
  address = "$W/c.sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "localhost/pause:1"
  restrict_oom_score_adj = true
  netns_mounts_under_state_dir = true
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "native"
    default_runtime_name = "runc"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        SystemdCgroup = false
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "$W/cni"
K
echo '{"cniVersion":"0.4.0","name":"k","plugins":[{"type":"bridge","bridge":"cni0","isGateway":true,"ipMasq":false,"ipam":{"type":"host-local","dataDir":"'$W/ipam'","ranges":[[{"subnet":"10.244.0.0/24"}]],"routes":[{"dst":"0.0.0.0/0"}]}},{"type":"portmap","capabilities":{"portMappings":true}}]}' > cni/10-b.conflist
cat > kubelet.yaml <<K
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
address: 127.0.0.1
port: 10250
healthzBindAddress: 127.0.0.1
authentication: {anonymous: {enabled: true}, webhook: {enabled: false}}
authorization: {mode: AlwaysAllow}
cgroupDriver: cgroupfs
failCgroupV1: false
failSwapOn: false
makeIPTablesUtilChains: false
podLogsDir: $W/logs
clusterDNS: [10.244.0.1]
clusterDomain: cluster.local
containerRuntimeEndpoint: unix://$W/c.sock
cgroupsPerQOS: false
enforceNodeAllocatable: []
localStorageCapacityIsolation: false
evictionHard: {memory.available: "10Mi", nodefs.available: "1%", imagefs.available: "1%", nodefs.inodesFree: "1%"}
imageGCHighThresholdPercent: 100
imageGCLowThresholdPercent: 99
K
# The bridge that the pods will be on, for the name server that kube-e2e runs on its address.
ip link add cni0 type bridge && ip addr add 10.244.0.1/24 dev cni0 && ip link set cni0 up
run(){ n=$1; shift; ( exec "$@" >$n.log 2>&1 & echo $! >$n.pid ); }
run containerd containerd -c containerd.toml
run etcd $B/etcd --data-dir $W/etcd --listen-client-urls http://127.0.0.1:23790 --advertise-client-urls http://127.0.0.1:23790 --listen-peer-urls http://127.0.0.1:23800 --log-level warn
sleep 1
run api $B/kube-apiserver --etcd-servers=http://127.0.0.1:23790 --bind-address=127.0.0.1 --secure-port=16443 --cert-dir=$W/certs --service-account-key-file=sa.key --service-account-signing-key-file=sa.key --service-account-issuer=https://k.local --token-auth-file=tokens.csv --authorization-mode=RBAC --service-cluster-ip-range=10.200.0.0/24 --endpoint-reconciler-type=none --disable-admission-plugins=ServiceAccount --allow-privileged --kubelet-preferred-address-types=Hostname
for i in $(seq 1 120); do curl -sk -H 'Authorization: Bearer tok123' https://127.0.0.1:16443/readyz 2>/dev/null | grep -q '^ok' && break; sleep 0.25; done
run kcm $B/kube-controller-manager --kubeconfig=kc --bind-address=127.0.0.1 --leader-elect=false --service-account-private-key-file=sa.key --cluster-cidr=10.244.0.0/16 --allocate-node-cidrs --cert-dir=$W/kcm
run ks $B/kube-scheduler --kubeconfig=kc --bind-address=127.0.0.1 --leader-elect=false --cert-dir=$W/ks
for t in "${imgs[@]}"; do ctr -a $W/c.sock -n k8s.io images import "$t" >/dev/null; done
run kubelet $B/kubelet --config=kubelet.yaml --kubeconfig=$W/kc --hostname-override=localhost --root-dir=$W/kl --cert-dir=$W/klpki
for i in $(seq 1 120); do KUBECONFIG=$W/kc kubectl get nodes 2>/dev/null | grep -q ' Ready' && break; sleep 0.5; done
KUBECONFIG=$W/kc kubectl get nodes | grep ' Ready' && echo "KUBECONFIG=$W/kc"
