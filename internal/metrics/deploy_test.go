package metrics_test

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
)

const (
	rulesFile     = "../../deploy/prometheus/rules.yaml"
	dashboardFile = "../../deploy/grafana/idemproxy.json"
)

// An alert is one rule of deploy/prometheus/rules.yaml.
type alert struct {
	Alert       string            `yaml:"alert"`
	Expr        string            `yaml:"expr"`
	For         string            `yaml:"for"`
	Labels      map[string]string `yaml:"labels"`
	Annotations map[string]string `yaml:"annotations"`
}

func alerts(t *testing.T) []alert {
	t.Helper()
	var file struct {
		Groups []struct {
			Name  string  `yaml:"name"`
			Rules []alert `yaml:"rules"`
		} `yaml:"groups"`
	}
	if err := yaml.UnmarshalWithOptions([]byte(read(t, rulesFile)), &file, yaml.Strict()); err != nil {
		t.Fatal(err)
	}
	var all []alert
	for _, g := range file.Groups {
		all = append(all, g.Rules...)
	}
	return all
}

func read(t *testing.T, file string) string {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// TestAlertsSayWhatToDo, and where that is written: each link is a heading of the page it
// names. That they fire is shown by deploy/prometheus/rules_test.yaml (make check-deploy).
func TestAlertsSayWhatToDo(t *testing.T) {
	places := headings(read(t, "../../docs/operations.md"))
	tests := read(t, "../../deploy/prometheus/rules_test.yaml")
	names := make(map[string]bool)
	for _, a := range alerts(t) {
		if names[a.Alert] || !strings.HasPrefix(a.Alert, "Idemproxy") {
			t.Errorf("alert %q: is there twice, or is not named for the program", a.Alert)
		}
		names[a.Alert] = true
		if s := a.Labels["severity"]; s != "warning" && s != "critical" {
			t.Errorf("%s: severity %q", a.Alert, s)
		}
		if a.For == "" || a.Annotations["summary"] == "" || len(a.Annotations["description"]) < 80 {
			t.Errorf("%s lacks one of for, summary and a description that says what to do", a.Alert)
		}
		if place, ok := strings.CutPrefix(a.Annotations["runbook_url"], "docs/operations.md#"); !ok || !places[place] {
			t.Errorf("%s: docs/operations.md has no heading for %q", a.Alert, a.Annotations["runbook_url"])
		}
		if !strings.Contains(tests, a.Alert) {
			t.Errorf("%s is not tested in rules_test.yaml", a.Alert)
		}
	}
	if len(names) < 10 {
		t.Errorf("there are %d alerts: is it still a file of rules?", len(names))
	}
}

// headings are the places of a page that links can name, as GitHub and others make them.
func headings(page string) map[string]bool {
	found := make(map[string]bool)
	dropped := regexp.MustCompile(`[^\p{L}\p{N} _-]`)
	for _, m := range regexp.MustCompile(`(?m)^#+ (.+)$`).FindAllStringSubmatch(page, -1) {
		found[strings.ReplaceAll(dropped.ReplaceAllString(strings.ToLower(m[1]), ""), " ", "-")] = true
	}
	return found
}

// A panel is one of the dashboard's; of its many fields those that can be wrong.
type panel struct {
	ID      int    `json:"id"`
	Type    string `json:"type"`
	Title   string `json:"title"`
	GridPos struct{ H, W, X, Y int }
	Targets []struct {
		Expr       string            `json:"expr"`
		Datasource map[string]string `json:"datasource"`
	} `json:"targets"`
}

// TestDashboard: Grafana would load deploy/grafana/idemproxy.json, and it shows every metric
// there is. Its queries, as promtool reads them, are kept in testdata for make check-deploy.
func TestDashboard(t *testing.T) {
	var board struct {
		UID        string
		Panels     []panel
		Templating struct{ List []struct{ Name, Type string } }
	}
	text := read(t, dashboardFile)
	if err := json.Unmarshal([]byte(text), &board); err != nil {
		t.Fatal(err)
	}
	ids, titles, queries := make(map[int]bool), make(map[string]bool), "groups:\n- name: the queries of deploy/grafana/idemproxy.json\n  rules:\n"
	for _, p := range board.Panels {
		if ids[p.ID] || titles[p.Title] || p.ID == 0 || p.Title == "" {
			t.Errorf("panel %d %q has no id or title of its own", p.ID, p.Title)
		}
		ids[p.ID], titles[p.Title] = true, true
		if p.GridPos.X+p.GridPos.W > 24 || p.GridPos.H == 0 {
			t.Errorf("panel %q lies outside the grid: %+v", p.Title, p.GridPos)
		}
		if (p.Type == "row") != (len(p.Targets) == 0) {
			t.Errorf("panel %q of type %s has %d queries", p.Title, p.Type, len(p.Targets))
		}
		for i, target := range p.Targets {
			if target.Datasource["uid"] != "${datasource}" {
				t.Errorf("panel %q asks the source %v, which is not the variable", p.Title, target.Datasource)
			}
			queries += fmt.Sprintf("  - record: panel_%d_%d\n    expr: %s\n", p.ID, i, quote(t, withoutVariables(target.Expr)))
		}
	}
	for name := range registered(t) {
		if !strings.Contains(text, "idemproxy_"+name) {
			t.Errorf("the dashboard does not show idemproxy_%s", name)
		}
	}
	if board.UID == "" || len(board.Templating.List) == 0 || board.Templating.List[0].Type != "datasource" {
		t.Errorf("uid %q, variables %+v: the first should be the data source", board.UID, board.Templating.List)
	}
	golden(t, "testdata/dashboard_queries.yaml", queries)
}

// withoutVariables gives Grafana's variables a value.
func withoutVariables(query string) string {
	return strings.NewReplacer("$__rate_interval", "5m", "$job", ".*", "$route", ".*").Replace(query)
}

func quote(t *testing.T, s string) string {
	t.Helper()
	quoted, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	return string(quoted)
}

// TestQueriesNameMetrics: what alerts and dashboard ask for is there, with these labels and,
// where the program has a list of them, these values.
func TestQueriesNameMetrics(t *testing.T) {
	texts := []string{read(t, "testdata/dashboard_queries.yaml"), read(t, "../../deploy/prometheus/rules_test.yaml")}
	for _, a := range alerts(t) {
		texts = append(texts, a.Expr)
	}
	known := series(t)
	named := regexp.MustCompile(`\b(idemproxy_\w+?)(_bucket|_count|_sum)?\b(?:\\?\{([^}]*)\})?`)
	matcher := regexp.MustCompile(`(\w+)(=~|!=|=)\\?"([^"\\]*)`)
	for _, text := range texts {
		for _, m := range named.FindAllStringSubmatch(text, -1) {
			values, ok := known[m[1]]
			if !ok {
				t.Errorf("there is no metric %s (%.80s)", m[1], m[0])
				continue
			}
			for _, l := range matcher.FindAllStringSubmatch(m[3], -1) {
				if l[1] == "job" || l[1] == "instance" || l[1] == "le" {
					continue
				}
				if values[l[1]] == nil {
					t.Errorf("%s has no label %s", m[1], l[1])
				}
				for _, v := range strings.Split(l[3], "|") {
					if l[1] != "route" && !values[l[1]][v] {
						t.Errorf("%s: %s is never %q", m[1], l[1], v)
					}
				}
			}
		}
	}
}

// series is every metric, its labels, and the values that they have.
func series(t *testing.T) map[string]map[string]map[string]bool {
	t.Helper()
	known := make(map[string]map[string]map[string]bool)
	for name, family := range registered(t) {
		known["idemproxy_"+name] = labelValues(family)
	}
	return known
}
