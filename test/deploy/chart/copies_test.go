package chart

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"testing"
)

// update rewrites what is made of something else: make chart-sync.
var update = os.Getenv("UPDATE_GOLDEN") != ""

func read(t *testing.T, name string) []byte {
	t.Helper()
	content, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

// same holds a file against what it should be.
func same(t *testing.T, name string, want []byte) {
	t.Helper()
	if update {
		if err := os.WriteFile(name, want, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(read(t, name), want) {
		t.Errorf("%s is not up to date: make chart-sync", name)
	}
}

// TestCopies: a chart can't reach outside of its folder.
func TestCopies(t *testing.T) {
	same(t, chartDir+"/files/rules.yaml", read(t, root+"/deploy/prometheus/rules.yaml"))
	same(t, chartDir+"/files/dashboard.json", read(t, root+"/deploy/grafana/idemproxy.json"))
}

// TestSchemaHoldsTheProgramsOwn: a fault in `config` is found at the installation.
func TestSchemaHoldsTheProgramsOwn(t *testing.T) {
	out, err := exec.Command(program, "schema", "config").Output()
	if err != nil {
		t.Fatal(err)
	}
	own, values := map[string]any{}, map[string]any{}
	if err := json.Unmarshal(out, &own); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(read(t, chartDir+"/values.schema.json"), &values); err != nil {
		t.Fatal(err)
	}
	delete(own, "$schema")
	delete(own, "title")
	properties := values["properties"].(map[string]any)
	if reflect.DeepEqual(properties["config"], any(own)) {
		return
	}
	properties["config"] = own
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", " ")
	if err := encoder.Encode(values); err != nil {
		t.Fatal(err)
	}
	same(t, chartDir+"/values.schema.json", text.Bytes())
}

// TestReadme: it is what helm-docs makes of the values' comments.
func TestReadme(t *testing.T) {
	dir := t.TempDir()
	if err := os.CopyFS(filepath.Join(dir, "idemproxy"), os.DirFS(chartDir)); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("go", "tool", "helm-docs", "--chart-search-root", dir).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	same(t, chartDir+"/README.md", read(t, filepath.Join(dir, "idemproxy/README.md")))
}

// TestEveryValueIsDescribed, and the schema knows it.
func TestEveryValueIsDescribed(t *testing.T) {
	if bytes.Contains(read(t, chartDir+"/README.md"), []byte("|  |")) {
		t.Error("a value has no description in values.yaml")
	}
}
