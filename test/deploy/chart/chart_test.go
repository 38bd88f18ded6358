// Package chart tests deploy/helm and deploy/kubernetes: the chart is rendered by helm for
// every way to run it, and each manifest is checked as a cluster would, the configuration
// in it by the program itself. Nothing here needs a cluster; `make kube-e2e` has one.
package chart

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const root = "../../.."

// program and helmBinary are built once, the second as a tool of this module.
var program, helmBinary string

func TestMain(m *testing.M) {
	os.Exit(run(m))
}

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "idemproxy-chart-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	program, helmBinary = filepath.Join(dir, "idemproxy"), filepath.Join(dir, "helm")
	for _, build := range []*exec.Cmd{
		exec.Command("go", "-C", root, "build", "-o", program, "./cmd/idemproxy"),
		exec.Command("go", "build", "-o", helmBinary, "helm.sh/helm/v4/cmd/helm"),
	} {
		if out, err := build.CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "%v: %v\n%s", build.Args, err, out)
			return 1
		}
	}
	return m.Run()
}

// helm runs helm.
func helm(args ...string) (string, error) {
	var errs strings.Builder
	cmd := exec.Command(helmBinary, args...)
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("helm %s: %w\n%s%s", strings.Join(args, " "), err, out, errs.String())
	}
	return string(out), err
}

const chartDir = root + "/deploy/helm/idemproxy"

// needed are the values without which nothing can be rendered; the other files of testdata
// go over it, one for each way to run the chart. make kube-e2e reads them too.
const needed = "testdata/needed.yml"

// render is what helm makes of values.
func render(t *testing.T, values string) []object {
	t.Helper()
	text, err := helm("template", "release", chartDir, "--namespace", "somewhere", "-f", needed, "-f", values)
	if err != nil {
		t.Fatal(err)
	}
	return objects(t, text)
}

func file(t *testing.T, content string) string {
	t.Helper()
	f, err := os.CreateTemp("", "idemproxy-values-*.yaml") //nolint:usetesting // helm splits names at commas, which a test's folder may have
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.Remove(f.Name()) })
	if _, err := f.WriteString(content); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	return f.Name()
}

func TestEveryWay(t *testing.T) {
	ways, err := filepath.Glob("testdata/*.yaml")
	if err != nil || len(ways) < 10 {
		t.Fatal(ways, err)
	}
	for _, values := range ways {
		t.Run(filepath.Base(values), func(t *testing.T) {
			t.Parallel()
			if out, err := helm("lint", "--strict", chartDir, "-f", needed, "-f", values); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
			checkAll(t, render(t, values))
		})
	}
}

// TestShop: the application's chart of the examples, with the sidecar in it.
func TestShop(t *testing.T) {
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(root+"/deploy/helm")); err != nil {
		t.Fatal(err)
	}
	shop := filepath.Join(dir, "examples/shop")
	if _, err := helm("dependency", "update", shop); err != nil {
		t.Fatal(err)
	}
	for name, values := range map[string]string{
		"native, with a job":                      `job: {args: [version]}`,
		"an ordinary container, for old clusters": `idemproxy: {sidecar: {native: false}, onConfigChange: reload}`,
		"on a file":   `idemproxy: {config: {store: {type: file}}}`,
		"in Postgres": `idemproxy: {config: {store: {type: postgres}}}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			text, err := helm("template", "shop", shop, "--namespace", "somewhere", "-f", file(t, values))
			if err != nil {
				t.Fatal(err)
			}
			found := objects(t, text)
			checkAll(t, found)
			native := !strings.Contains(values, "native: false")
			for _, o := range found {
				if pod := o.pod(); pod != nil {
					containers := pod.Spec.Containers
					if native {
						containers = pod.Spec.InitContainers
					}
					if len(containers) == 0 || containers[0].Name != "idemproxy" || (containers[0].RestartPolicy != nil) != native || native && *containers[0].RestartPolicy != "Always" {
						t.Errorf("%s: no sidecar where it should be", o)
					} else if l := containers[0].Lifecycle; native != (l != nil && slices.Equal(l.PreStop.Exec.Command, []string{"/idemproxy", "drain"})) {
						t.Errorf("%s: preStop %v", o, l)
					}
				}
			}
		})
	}
	if _, err := helm("template", "shop", shop, "-f", file(t, `idemproxy: {mode: standalone, config: {store: {type: redis}}}`)); err == nil || !strings.Contains(err.Error(), "set mode: sidecar") {
		t.Errorf("a sidecar of a stand-alone one: %v", err)
	}
}

func TestPlainManifests(t *testing.T) {
	files, err := filepath.Glob(root + "/deploy/kubernetes/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatal("no manifests", err)
	}
	for _, name := range files {
		content, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		checkAll(t, objects(t, string(content)))
	}
}

// TestRefused: what would execute an operation twice, end pods too early, or is misspelt.
func TestRefused(t *testing.T) {
	for values, want := range map[string]string{
		`config: {store: {type: memory}}`:                                              `replicas: the store "memory" is one replica's own`,
		`config: {store: {type: file}}`:                                                `replicas: the store "file" is one replica's own`,
		`{replicas: 1, autoscaling: {enabled: true}, config: {store: {type: memory}}}`: `replicas: the store "memory" is one replica's own`,
		`terminationGracePeriodSeconds: 34`:                                            `terminationGracePeriodSeconds: 34 is less than server.drain_delay and server.shutdown_grace together (35 s)`,
		`{terminationGracePeriodSeconds: 60, config: {server: {drain_delay: 1m}}}`:     `together (90 s)`,
		`config: {upstream: {url: ""}}`:                                                `config.upstream.url: name the application`,
		`{mode: sidecar, metrics: {monitor: {enabled: true}}}`:                         `metrics.monitor.podSelector: name labels`,
		`config: {admin: {listen: ""}}`:                                                `config.admin.listen: an address with a port in figures`,
		`config: {server: {listen: "${LISTEN}"}}`:                                      `config.server.listen: an address with a port in figures`,
		`config: {admin: {listen: "127.0.0.1:9090"}}`:                                  `config.admin.listen: nobody outside the pod`,
		`config: {server: {listen: "localhost:8080"}}`:                                 `config.server.listen: nobody outside the pod`,
		`config: {server: {drain_delay: "${DELAY:-5s}"}}`:                              `terminationGracePeriodSeconds: say it`,
		`config: {server: {drain_delay: 5}}`:                                           `/config/server/drain_delay`,
		`config: {store: {type: "${STORE}"}}`:                                          `config.store.type: no variable here`,
		`extraEnv: [{name: IDEMPROXY_STORE_TYPE, value: memory}]`:                      `extraEnv: not IDEMPROXY_STORE_TYPE`,
		`extraArgs: ["--listen=:9000"]`:                                                `extraArgs: set config.server.listen`,
		`{autoscaling: {enabled: true}, resources: {requests: {cpu: null}}}`:           `resources.requests.cpu: autoscaling measures`,
		`resources: null`:                                  `missing property 'resources'`,
		`startupProbe: null`:                               `missing property 'startupProbe'`,
		`commonLabels: {app.kubernetes.io/name: mine}`:     `commonLabels: not app.kubernetes.io/name`,
		`existingSecret: ""`:                               `existingSecret: name a Secret with the store's URL as redis-url`,
		`service: {port: null}`:                            `missing property 'port'`,
		`nameOverride: my.app`:                             `/nameOverride`,
		`replcas: 3`:                                       `additional properties 'replcas' not allowed`,
		`image: {tga: v1}`:                                 `additional properties 'tga' not allowed`,
		`metrics: {monitor: {enable: true}}`:               `additional properties 'enable' not allowed`,
		`config: {stroe: {type: redis}}`:                   `additional properties 'stroe' not allowed`,
		`config: {routes: [{name: a, path: /a, tll: 1h}]}`: `additional properties 'tll' not allowed`,
		`config: {store: {type: mysql}}`:                   `/config/store/type`,
		`mode: daemon`:                                     `/mode`,
		`replicas: two`:                                    `/replicas`,
	} {
		t.Run(values, func(t *testing.T) {
			t.Parallel()
			_, err := helm("template", "release", chartDir, "-f", needed, "-f", file(t, values))
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%v\nwant %s", err, want)
			}
		})
	}
}

// TestOldCluster: one that doesn't know native sidecars would wait for the proxy's end.
func TestOldCluster(t *testing.T) {
	for native, want := range map[string]string{"true": "sidecar.native: this cluster is older", "false": ""} {
		_, err := helm("template", "release", chartDir, "-f", needed, "--kube-version", "1.28.9", "--set", "mode=sidecar,sidecar.native="+native)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("native %s: %v", native, err)
		}
	}
}

// TestGrace: pods have as long to end as the program may take.
func TestGrace(t *testing.T) {
	for values, want := range map[string]int64{
		`{}`: 5 + 30 + 5,
		`config: {server: {drain_delay: 1m30s, shutdown_grace: 1500ms}}`:                        90 + 2 + 5,
		`config: {server: {drain_delay: 1.5h, shutdown_grace: 0s}}`:                             5400 + 5,
		`terminationGracePeriodSeconds: 35`:                                                     35,
		`{terminationGracePeriodSeconds: 70, config: {server: {drain_delay: "${DELAY:-40s}"}}}`: 70,
		`config: {server: {drain_delay: "0", shutdown_grace: 500ms}}`:                           1 + 5,
	} {
		for _, o := range render(t, file(t, values)) {
			if pod := o.pod(); o.Kind == "Deployment" && *pod.Spec.TerminationGracePeriodSeconds != want {
				t.Errorf("%s: %d s, want %d", values, *pod.Spec.TerminationGracePeriodSeconds, want)
			}
		}
	}
}

// TestConfigChange: a change of the configuration restarts the pods, unless it is reloaded.
func TestConfigChange(t *testing.T) {
	checksum := func(values string) string {
		for _, o := range render(t, file(t, values)) {
			if o.Kind == "Deployment" {
				return o.pod().Annotations["checksum/idemproxy"]
			}
		}
		t.Fatal("no Deployment")
		return ""
	}
	before, after := checksum(`{}`), checksum(`config: {log: {level: debug}}`)
	if before == "" || before == after || before != checksum(`{podLabels: {a: b}}`) {
		t.Errorf("checksums %q, %q", before, after)
	}
	reloads := checksum(`onConfigChange: reload`)
	for values, restart := range map[string]bool{
		`{onConfigChange: reload, config: {log: {level: debug}, limits: {max_concurrent: 9}, defaults: {ttl: 2h}, routes: [{name: other, path: /other}]}}`: false,
		`{onConfigChange: reload, config: {log: {format: console}}}`:                                                                                       true,
		`{onConfigChange: reload, config: {server: {drain_delay: 9s}}}`:                                                                                    true,
	} {
		if got := checksum(values); got == "" || (got != reloads) != restart {
			t.Errorf("%s: %q, at first %q", values, got, reloads)
		}
	}
}
