// Command kube runs the chart on a real Kubernetes node, for `make kube-e2e`: both ways to
// run it, through rolling restarts and the death of pods, counting what was executed. It
// tells each step and stops at the first that fails.
//
// It stands where kube-proxy and CoreDNS would: callers read the addresses of a Service
// from its EndpointSlices, and a name server answers with the same.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"time"
)

// An installation is a cluster and what the steps have in common.
type installation struct {
	helm      string // the binary
	root      string // of the repository
	scratch   string
	namespace string
	cluster   cluster
}

func main() {
	var in installation
	flag.StringVar(&in.helm, "helm", "helm", "the helm binary")
	flag.StringVar(&in.root, "root", "../..", "root of the repository")
	flag.StringVar(&in.scratch, "scratch", os.TempDir(), "folder for files")
	dns := flag.String("dns", "", "address of the name server for pods")
	flag.Parse()
	in.namespace = "shop"
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := in.run(ctx, *dns)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "kube-e2e FAILED:", err)
		os.Exit(1)
	}
	fmt.Println("\nkube-e2e passed")
}

// run takes the steps.
func (in *installation) run(ctx context.Context, dns string) error {
	if err := in.cluster.serveNames(ctx, dns); err != nil {
		return err
	}
	go in.cluster.watch(ctx)
	for _, step := range []struct {
		name string
		take func(context.Context) error
	}{
		{"a namespace with the restricted profile, Redis, and a service to protect", in.prepare},
		{"every manifest of the chart's tests passes a server's dry run", in.dryRuns},
		{"stand-alone: two replicas", in.installStandalone},
		{"stand-alone: helm test", in.helmTest},
		{"stand-alone: a rolling restart under load", in.standaloneRestart},
		{"stand-alone: a pod deleted by force, a process killed, under load", in.standaloneDeaths},
		{"stand-alone: an edited ConfigMap is reloaded", in.reload},
		{"sidecar: two replicas of an application with it, and a Job", in.installSidecar},
		{"sidecar: the Job completes", in.jobCompletes},
		{"sidecar: a rolling restart under load", in.sidecarRestart},
	} {
		began := time.Now()
		fmt.Printf("\n=== %s\n", step.name)
		if err := step.take(ctx); err != nil {
			in.tell()
			return fmt.Errorf("%s: %w", step.name, err)
		}
		fmt.Printf("--- ok, %.0f s\n", time.Since(began).Seconds())
	}
	return nil
}

// tell prints what may explain a failure.
func (in *installation) tell() {
	for _, args := range [][]string{{"get", "pods", "-o", "wide"}, {"get", "events"}, {"logs", "--all-containers", "--tail=20", "--prefix", "-l", "app.kubernetes.io/instance=idem"}} {
		out, _ := in.kubectl(context.Background(), "", args...)
		fmt.Println(out)
	}
}

func (in *installation) prepare(ctx context.Context) error {
	for _, crds := range []string{"servicemonitors", "podmonitors", "prometheusrules"} {
		if _, err := in.kubectl(ctx, "", "apply", "--server-side", "-f", filepath.Join(in.scratch, "crds", "monitoring.coreos.com_"+crds+".yaml")); err != nil {
			return err
		}
	}
	if _, err := in.kubectl(ctx, prepared, "apply", "-f", "-"); err != nil {
		return err
	}
	return in.rolledOut(ctx, "deployment/redis", "deployment/app")
}

// dryRuns has the API server check what the chart makes of each file of values of its tests.
func (in *installation) dryRuns(ctx context.Context) error {
	dir := filepath.Join(in.root, "test/deploy/chart/testdata")
	files, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
	if err != nil || len(files) == 0 {
		return fmt.Errorf("no values in %s: %w", dir, err)
	}
	for _, file := range files {
		text, err := run(ctx, "", in.helm, "template", "dry", in.chart(), "--namespace", in.namespace, "-f", filepath.Join(dir, "needed.yml"), "-f", file)
		if err != nil {
			return err
		}
		if err := in.dryRun(ctx, filepath.Base(file), text); err != nil {
			return err
		}
	}
	plain, err := os.ReadFile(filepath.Join(in.root, "deploy/kubernetes/sidecar.yaml"))
	if err != nil {
		return err
	}
	return in.dryRun(ctx, "deploy/kubernetes/sidecar.yaml", string(plain))
}

func (in *installation) dryRun(ctx context.Context, name, manifests string) error {
	out, err := in.kubectl(ctx, manifests, "apply", "--dry-run=server", "-f", "-")
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if strings.Contains(out, "Warning") {
		return fmt.Errorf("%s: %s", name, out)
	}
	fmt.Printf("%s: %d objects\n", name, strings.Count(out, "(server dry run)"))
	return nil
}

func (in *installation) chart() string { return filepath.Join(in.root, "deploy/helm/idemproxy") }

func (in *installation) installStandalone(ctx context.Context) error {
	return in.install(ctx, "idem", in.chart(), standaloneValues)
}

// install installs or upgrades a release and waits until its pods are ready.
func (in *installation) install(ctx context.Context, release, chart, values string) error {
	file := filepath.Join(in.scratch, release+".yaml")
	if err := os.WriteFile(file, []byte(values), 0o600); err != nil {
		return err
	}
	if _, err := run(ctx, "", in.helm, "upgrade", "--install", release, chart, "--namespace", in.namespace, "-f", file, "--wait", "--timeout", "120s"); err != nil {
		return err
	}
	fmt.Println("helm installed", release)
	return nil
}

func (in *installation) helmTest(ctx context.Context) error {
	out, err := run(ctx, "", in.helm, "test", "idem", "--namespace", in.namespace, "--timeout", "60s", "--logs")
	fmt.Print(out)
	return err
}
