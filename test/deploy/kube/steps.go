package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

func (in *installation) standaloneRestart(ctx context.Context) error {
	return in.underLoad(ctx, &load{service: "idem-idemproxy", executes: "app=app", container: "app"}, func() error {
		if _, err := in.kubectl(ctx, "", "rollout", "restart", "deployment/idem-idemproxy"); err != nil {
			return err
		}
		return in.rolledOut(ctx, "deployment/idem-idemproxy")
	})
}

func (in *installation) standaloneDeaths(ctx context.Context) error {
	return in.underLoad(ctx, &load{service: "idem-idemproxy", executes: "app=app", container: "app", deaths: true}, func() error {
		pods, err := in.pods(ctx, "app.kubernetes.io/instance=idem")
		if err != nil {
			return err
		}
		if _, err := in.kubectl(ctx, "", "delete", "pod", pods[0], "--force", "--grace-period=0"); err != nil {
			return err
		}
		if err := in.rolledOut(ctx, "deployment/idem-idemproxy"); err != nil {
			return err
		}
		if err := in.kill(ctx, pods[1]); err != nil {
			return err
		}
		_, err = in.kubectl(ctx, "", "wait", "--for=condition=Ready", "pod", "-l", "app.kubernetes.io/instance=idem", "--timeout=90s")
		return err
	})
}

// kill ends the proxy's process in a pod, as the kernel would that is out of memory.
func (in *installation) kill(ctx context.Context, pod string) error {
	uid, err := in.kubectl(ctx, "", "get", "pod", pod, "-o", "jsonpath={.metadata.uid}")
	if err != nil {
		return err
	}
	groups, err := filepath.Glob("/proc/[0-9]*/cgroup")
	if err != nil {
		return err
	}
	for _, group := range groups {
		dir := filepath.Dir(group)
		content, _ := os.ReadFile(group)
		command, _ := os.ReadFile(filepath.Join(dir, "cmdline"))
		inPod := strings.Contains(string(content), uid) || strings.Contains(environment(dir), "POD_NAME="+pod+"\x00")
		if !inPod || !strings.HasPrefix(string(command), "/idemproxy\x00serve") {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(dir))
		if err != nil {
			return err
		}
		fmt.Printf("SIGKILL to the proxy of %s\n", pod)
		p, err := os.FindProcess(pid)
		if err != nil {
			return err
		}
		return p.Kill()
	}
	return errors.New("the process of " + pod + " is not found")
}

func environment(dir string) string {
	content, _ := os.ReadFile(filepath.Join(dir, "environ"))
	return string(content) + "\x00"
}

// reload: kubelet brings an edited ConfigMap within about a minute, and the program reads it.
func (in *installation) reload(ctx context.Context) error {
	values := standaloneValues + "onConfigChange: reload\n"
	if err := in.install(ctx, "idem", in.chart(), values); err != nil {
		return err
	}
	pods, err := in.pods(ctx, "app.kubernetes.io/instance=idem")
	if err != nil {
		return err
	}
	edited := strings.ReplaceAll(values, "path: /payments}", "path: /payments, missing_header: pass-through}")
	if err := in.install(ctx, "idem", in.chart(), edited); err != nil {
		return err
	}
	began := time.Now()
	for ; time.Since(began) < 3*time.Minute; time.Sleep(time.Second) {
		after, err := in.pods(ctx, "app.kubernetes.io/instance=idem")
		if err != nil {
			return err
		}
		if strings.Join(after, " ") != strings.Join(pods, " ") {
			return fmt.Errorf("pods were restarted: %v, %v", pods, after)
		}
		passing := 0
		for _, address := range in.cluster.pods(in.namespace, "idem-idemproxy") {
			if status := postWithoutKey(ctx, address); status == 201 {
				passing++
			}
		}
		if passing == 2 {
			fmt.Printf("both replicas have it after %.0f s, without a restart\n", time.Since(began).Seconds())
			return nil
		}
	}
	return errors.New("the edit was not taken up")
}

func (in *installation) installSidecar(ctx context.Context) error {
	dir := filepath.Join(in.scratch, "charts")
	if err := os.CopyFS(dir, os.DirFS(filepath.Join(in.root, "deploy/helm"))); err != nil {
		return err
	}
	shop := filepath.Join(dir, "examples/shop")
	if _, err := run(ctx, "", in.helm, "dependency", "update", shop); err != nil {
		return err
	}
	return in.install(ctx, "shop", shop, sidecarValues)
}

func (in *installation) jobCompletes(ctx context.Context) error {
	if _, err := in.kubectl(ctx, "", "wait", "--for=condition=Complete", "job/shop-job", "--timeout=90s"); err != nil {
		return err
	}
	codes, err := in.kubectl(ctx, "", "get", "pod", "-l", "job-name=shop-job", "-o",
		"jsonpath={range .items[*]}{.metadata.name}: job {.status.containerStatuses[0].state.terminated.exitCode}, sidecar {.status.initContainerStatuses[0].state.terminated.exitCode}{end}")
	if err != nil {
		return err
	}
	fmt.Println(codes)
	if !strings.HasSuffix(codes, ": job 0, sidecar 0") {
		return errors.New("exit codes: " + codes)
	}
	return nil
}

func (in *installation) sidecarRestart(ctx context.Context) error {
	return in.underLoad(ctx, &load{service: "shop", executes: "app=shop", container: "shop"}, func() error {
		if _, err := in.kubectl(ctx, "", "rollout", "restart", "deployment/shop"); err != nil {
			return err
		}
		return in.rolledOut(ctx, "deployment/shop")
	})
}

// rolledOut waits until what was named is as it should be, old pods gone.
func (in *installation) rolledOut(ctx context.Context, names ...string) error {
	for _, name := range names {
		out, err := in.kubectl(ctx, "", "rollout", "status", name, "--timeout=180s")
		if err != nil {
			return err
		}
		lines := strings.Split(strings.TrimSpace(out), "\n")
		fmt.Println(lines[len(lines)-1])
	}
	return nil
}

// pods are the names of the pods that a selector finds and that nobody ends.
func (in *installation) pods(ctx context.Context, selector string) ([]string, error) {
	out, err := in.kubectl(ctx, "", "get", "pods", "-l", selector, "--field-selector=status.phase=Running", "-o", "json")
	if err != nil {
		return nil, err
	}
	var list struct {
		Items []struct {
			Metadata struct {
				Name              string
				DeletionTimestamp string
			}
		}
	}
	if err := json.Unmarshal([]byte(out), &list); err != nil {
		return nil, err
	}
	var names []string
	for _, pod := range list.Items {
		if pod.Metadata.DeletionTimestamp == "" {
			names = append(names, pod.Metadata.Name)
		}
	}
	if len(names) == 0 {
		return nil, errors.New("no pods: " + selector)
	}
	return names, nil
}

// kubectl runs kubectl in the namespace.
func (in *installation) kubectl(ctx context.Context, stdin string, args ...string) (string, error) {
	return run(ctx, stdin, "kubectl", append([]string{"--namespace", in.namespace}, args...)...)
}

func run(ctx context.Context, stdin, command string, args ...string) (string, error) {
	var errs strings.Builder
	cmd := exec.CommandContext(ctx, command, args...)
	cmd.Stdin, cmd.Stderr = strings.NewReader(stdin), &errs
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("%s %s: %w\n%s%s", command, strings.Join(args, " "), err, out, errs.String())
	}
	return string(out) + errs.String(), err
}
