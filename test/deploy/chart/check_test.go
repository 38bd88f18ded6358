package chart

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"testing"

	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	apps "k8s.io/api/apps/v1"
	autoscaling "k8s.io/api/autoscaling/v2"
	batch "k8s.io/api/batch/v1"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	policy "k8s.io/api/policy/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"
	podsecurity "k8s.io/pod-security-admission/api"
	podpolicy "k8s.io/pod-security-admission/policy"
	"sigs.k8s.io/yaml"
)

// An object is one manifest, decoded.
type object struct {
	meta.TypeMeta
	meta.ObjectMeta
	typed any
	text  []byte
}

func (o object) String() string { return o.Kind + " " + o.Name }

// types are the API types that a manifest may have.
var types = map[string]func() any{
	"v1 ConfigMap":                            func() any { return new(core.ConfigMap) },
	"v1 Service":                              func() any { return new(core.Service) },
	"v1 ServiceAccount":                       func() any { return new(core.ServiceAccount) },
	"v1 Pod":                                  func() any { return new(core.Pod) },
	"apps/v1 Deployment":                      func() any { return new(apps.Deployment) },
	"apps/v1 StatefulSet":                     func() any { return new(apps.StatefulSet) },
	"batch/v1 Job":                            func() any { return new(batch.Job) },
	"autoscaling/v2 HorizontalPodAutoscaler":  func() any { return new(autoscaling.HorizontalPodAutoscaler) },
	"policy/v1 PodDisruptionBudget":           func() any { return new(policy.PodDisruptionBudget) },
	"networking.k8s.io/v1 NetworkPolicy":      func() any { return new(networking.NetworkPolicy) },
	"monitoring.coreos.com/v1 ServiceMonitor": func() any { return new(monitoring.ServiceMonitor) },
	"monitoring.coreos.com/v1 PodMonitor":     func() any { return new(monitoring.PodMonitor) },
	"monitoring.coreos.com/v1 PrometheusRule": func() any { return new(monitoring.PrometheusRule) },
}

// objects decodes manifests strictly: an unknown field, or one given twice, is a fault.
func objects(t *testing.T, text string) []object {
	t.Helper()
	var found []object
	for _, doc := range regexp.MustCompile(`(?m)^---$`).Split(text, -1) {
		var head struct {
			meta.TypeMeta
			meta.ObjectMeta `json:"metadata"`
		}
		if err := yaml.Unmarshal([]byte(doc), &head); err != nil {
			t.Fatalf("%v\n%s", err, doc)
		}
		if head.Kind == "" {
			continue
		}
		empty, known := types[head.APIVersion+" "+head.Kind]
		if !known {
			t.Fatalf("%s %s: no known type", head.APIVersion, head.Kind)
		}
		o := object{head.TypeMeta, head.ObjectMeta, empty(), []byte(doc)}
		if err := yaml.UnmarshalStrict([]byte(doc), o.typed); err != nil {
			t.Errorf("%s: %v", o, err)
		}
		found = append(found, o)
	}
	if len(found) == 0 {
		t.Fatal("no manifests")
	}
	return found
}

// pod is the pod that an object has or makes, or nil.
func (o object) pod() *core.PodTemplateSpec {
	switch w := o.typed.(type) {
	case *apps.Deployment:
		return &w.Spec.Template
	case *apps.StatefulSet:
		return &w.Spec.Template
	case *batch.Job:
		return &w.Spec.Template
	case *core.Pod:
		return &core.PodTemplateSpec{ObjectMeta: w.ObjectMeta, Spec: w.Spec}
	default:
		return nil
	}
}

// checkAll checks the manifests of one release.
func checkAll(t *testing.T, found []object) {
	t.Helper()
	names := map[string]bool{}
	for _, o := range found {
		if names[o.String()] || len(validation.IsDNS1123Label(o.Name)) > 0 || len(o.Name) > 63 {
			t.Errorf("%s: a name that is taken or not allowed", o)
		}
		names[o.String()] = true
		checkSchema(t, o)
		for key, value := range o.Labels {
			if errs := append(validation.IsQualifiedName(key), validation.IsValidLabelValue(value)...); len(errs) > 0 {
				t.Errorf("%s: label %s: %s: %v", o, key, value, errs)
			}
		}
		if pod := o.pod(); pod != nil {
			checkPod(t, o, pod)
		}
		if c, ok := o.typed.(*core.ConfigMap); ok && c.Data["idemproxy.yaml"] != "" {
			checkConfig(t, c.Data["idemproxy.yaml"])
		}
	}
	checkSelectors(t, found)
	checkNamed(t, found)
}

// checkPod: the restricted profile, by its own evaluator and field by field, and what the
// proxy needs to run.
func checkPod(t *testing.T, o object, pod *core.PodTemplateSpec) {
	t.Helper()
	evaluator, err := podpolicy.NewEvaluator(podpolicy.DefaultChecks(), nil)
	if err != nil {
		t.Fatal(err)
	}
	restricted := podsecurity.LevelVersion{Level: podsecurity.LevelRestricted, Version: podsecurity.LatestVersion()}
	for _, r := range evaluator.EvaluatePod(restricted, &pod.ObjectMeta, &pod.Spec) {
		if !r.Allowed {
			t.Errorf("%s: not restricted: %s: %s", o, r.ForbiddenReason, r.ForbiddenDetail)
		}
	}
	if a := pod.Spec.AutomountServiceAccountToken; a == nil || *a {
		t.Errorf("%s: it has a token of the cluster", o)
	}
	if s := pod.Spec.SecurityContext; s == nil || s.RunAsNonRoot == nil || !*s.RunAsNonRoot || s.SeccompProfile == nil || s.SeccompProfile.Type != core.SeccompProfileTypeRuntimeDefault {
		t.Errorf("%s: pod's security context %v", o, s)
	}
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		s := c.SecurityContext
		if s == nil || s.AllowPrivilegeEscalation == nil || *s.AllowPrivilegeEscalation || s.ReadOnlyRootFilesystem == nil || !*s.ReadOnlyRootFilesystem ||
			s.Capabilities == nil || !slices.Contains(s.Capabilities.Drop, "ALL") || len(s.Capabilities.Add) > 0 || s.Privileged != nil && *s.Privileged {
			t.Errorf("%s: container %s: security context %v", o, c.Name, s)
		}
		if c.Name == "idemproxy" {
			checkProxy(t, o, pod, c)
		}
	}
}

// checkProxy: probes on the port that serves them, mounts that have a volume, and time to end.
func checkProxy(t *testing.T, o object, pod *core.PodTemplateSpec, c core.Container) {
	t.Helper()
	ports := map[string]int32{}
	for _, p := range c.Ports {
		ports[p.Name] = p.ContainerPort
	}
	if ports["idem-http"] == 0 || ports["idem-admin"] == 0 {
		t.Errorf("%s: ports %v", o, ports)
	}
	for path, probe := range map[string]*core.Probe{"/startupz": c.StartupProbe, "/livez": c.LivenessProbe, "/readyz": c.ReadinessProbe} {
		if probe == nil || probe.HTTPGet == nil || probe.HTTPGet.Path != path || probe.HTTPGet.Port.StrVal != "idem-admin" {
			t.Errorf("%s: probe of %s: %v", o, path, probe)
		}
	}
	variables := map[string]bool{}
	for _, v := range c.Env {
		if variables[v.Name] {
			t.Errorf("%s: variable %s twice", o, v.Name)
		}
		variables[v.Name] = true
	}
	if d, ok := o.typed.(*apps.Deployment); ok && d.Spec.Strategy.Type == apps.RecreateDeploymentStrategyType && d.Spec.Strategy.RollingUpdate != nil {
		t.Errorf("%s: Recreate, and how to roll", o)
	}
	volumes := map[string]bool{}
	for _, v := range pod.Spec.Volumes {
		volumes[v.Name] = true
	}
	if s, ok := o.typed.(*apps.StatefulSet); ok {
		for _, v := range s.Spec.VolumeClaimTemplates {
			volumes[v.Name] = true
		}
	}
	for _, m := range c.VolumeMounts {
		if !volumes[m.Name] {
			t.Errorf("%s: no volume %s", o, m.Name)
		}
	}
	if g := pod.Spec.TerminationGracePeriodSeconds; g == nil || *g < 30 {
		t.Errorf("%s: terminationGracePeriodSeconds %v", o, g)
	}
	if c.Resources.Limits.Memory().IsZero() || c.Resources.Requests.Cpu().IsZero() {
		t.Errorf("%s: resources %v", o, c.Resources)
	}
}

// checkConfig: the program accepts its file.
func checkConfig(t *testing.T, text string) {
	t.Helper()
	name := filepath.Join(t.TempDir(), "idemproxy.yaml")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(program, "validate", name).CombinedOutput(); err != nil {
		t.Errorf("idemproxy validate: %v\n%s\n%s", err, out, text)
	}
}

// checkSelectors: each selector finds pods of the release, and none those of a test.
func checkSelectors(t *testing.T, found []object) {
	t.Helper()
	selects := func(o object, selector map[string]string, port string) {
		for _, other := range found {
			pod := other.pod()
			if pod == nil || !labels.SelectorFromSet(selector).Matches(labels.Set(pod.Labels)) {
				continue
			}
			if other.Annotations["helm.sh/hook"] != "" {
				t.Errorf("%s selects the test", o)
			}
			for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
				if port == "" || slices.ContainsFunc(c.Ports, func(p core.ContainerPort) bool { return p.Name == port }) {
					return
				}
			}
		}
		t.Errorf("%s selects no pod with the port %s", o, port)
	}
	for _, o := range found {
		switch x := o.typed.(type) {
		case *core.Service:
			for _, p := range x.Spec.Ports {
				selects(o, x.Spec.Selector, p.TargetPort.StrVal)
			}
		case *apps.Deployment:
			selects(o, x.Spec.Selector.MatchLabels, "")
		case *apps.StatefulSet:
			selects(o, x.Spec.Selector.MatchLabels, "")
		case *policy.PodDisruptionBudget:
			selects(o, x.Spec.Selector.MatchLabels, "")
		case *networking.NetworkPolicy:
			for _, rule := range x.Spec.Ingress {
				for _, p := range rule.Ports {
					selects(o, x.Spec.PodSelector.MatchLabels, p.Port.StrVal)
				}
			}
		}
	}
}

// checkNamed: what an object names, another one is.
func checkNamed(t *testing.T, found []object) {
	t.Helper()
	has := func(kind, name string) bool {
		return slices.ContainsFunc(found, func(o object) bool { return o.Kind == kind && o.Name == name })
	}
	for _, o := range found {
		switch x := o.typed.(type) {
		case *autoscaling.HorizontalPodAutoscaler:
			if !has(x.Spec.ScaleTargetRef.Kind, x.Spec.ScaleTargetRef.Name) {
				t.Errorf("%s scales nothing", o)
			}
		case *apps.StatefulSet:
			if len(x.Name) > 52 { // its pods' label controller-revision-hash has eleven characters more
				t.Errorf("%s: too long a name", o)
			}
			if !has("Service", x.Spec.ServiceName) {
				t.Errorf("%s has no Service", o)
			}
		case *monitoring.ServiceMonitor:
			for _, other := range found {
				if s, ok := other.typed.(*core.Service); ok && labels.SelectorFromSet(x.Spec.Selector.MatchLabels).Matches(labels.Set(s.Labels)) != (s.Spec.Ports[0].Name == x.Spec.Endpoints[0].Port) {
					t.Errorf("%s and %s don't fit", o, other)
				}
			}
		}
		if pod := o.pod(); pod != nil && o.Annotations["helm.sh/hook"] == "" {
			if a := pod.Spec.ServiceAccountName; a != "" && !has("ServiceAccount", a) {
				t.Errorf("%s: no ServiceAccount %s", o, a)
			}
			for _, v := range pod.Spec.Volumes {
				if v.Name == "idemproxy-config" && v.ConfigMap.Name != "mine" && !has("ConfigMap", v.ConfigMap.Name) {
					t.Errorf("%s: no ConfigMap %s", o, v.ConfigMap.Name)
				}
			}
		}
	}
}
