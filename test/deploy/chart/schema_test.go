package chart

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"sigs.k8s.io/yaml"
)

// kubernetes is the release whose published schema manifests are held against.
const kubernetes = "k8s.io/kubernetes@v1.37.2"

// A schemas has the schema of each kind.
type schemas struct {
	compiler *jsonschema.Compiler
	kinds    map[string]string // "apps/v1 Deployment" to its definition
	mu       sync.Mutex
}

var published = sync.OnceValues(readSchemas)

// readSchemas reads the API's description that comes with the sources of Kubernetes.
func readSchemas() (*schemas, error) {
	out, err := exec.Command("go", "mod", "download", "-json", kubernetes).Output()
	if err != nil {
		return nil, err
	}
	var module struct{ Dir string }
	if err := json.Unmarshal(out, &module); err != nil {
		return nil, err
	}
	f, err := os.Open(filepath.Join(module.Dir, "api/openapi-spec/swagger.json"))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	doc, err := jsonschema.UnmarshalJSON(f)
	if err != nil {
		return nil, err
	}
	found := &schemas{compiler: jsonschema.NewCompiler(), kinds: map[string]string{}}
	definitions := doc.(map[string]any)["definitions"].(map[string]any)
	for name, d := range definitions {
		definition := d.(map[string]any)
		if _, has := definition["properties"]; has {
			definition["additionalProperties"] = false
		}
		kinds, _ := definition["x-kubernetes-group-version-kind"].([]any)
		for _, k := range kinds {
			kind := k.(map[string]any)
			version := strings.TrimPrefix(kind["group"].(string)+"/"+kind["version"].(string), "/")
			found.kinds[version+" "+kind["kind"].(string)] = name
		}
	}
	// Swagger has no word for these two.
	definitions["io.k8s.apimachinery.pkg.util.intstr.IntOrString"] = map[string]any{"type": []any{"string", "integer"}}
	definitions["io.k8s.apimachinery.pkg.api.resource.Quantity"] = map[string]any{"type": []any{"string", "number"}}
	found.compiler.DefaultDraft(jsonschema.Draft4)
	return found, found.compiler.AddResource("swagger.json", map[string]any{"definitions": definitions})
}

// checkSchema: the object is what the API describes. The Prometheus operator's are not in it.
func checkSchema(t *testing.T, o object) {
	t.Helper()
	s, err := published()
	if err != nil {
		t.Fatalf("read the API's description: %v", err)
	}
	name := s.kinds[o.APIVersion+" "+o.Kind]
	if name == "" {
		if strings.HasPrefix(o.APIVersion, "monitoring.coreos.com/") {
			return
		}
		t.Fatalf("%s: no schema", o)
	}
	s.mu.Lock()
	schema, err := s.compiler.Compile("swagger.json#/definitions/" + name)
	s.mu.Unlock()
	if err != nil {
		t.Fatalf("%s: %v", o, err)
	}
	text, err := yaml.YAMLToJSON(o.text)
	if err != nil {
		t.Fatal(err)
	}
	value, err := jsonschema.UnmarshalJSON(strings.NewReader(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	if err := schema.Validate(value); err != nil {
		t.Errorf("%s: %v", o, err)
	}
}

// TestSchemaFindsFaults: the check is no formality.
func TestSchemaFindsFaults(t *testing.T) {
	s, err := published()
	if err != nil {
		t.Fatal(err)
	}
	schema, err := s.compiler.Compile("swagger.json#/definitions/" + s.kinds["v1 Service"])
	if err != nil {
		t.Fatal(err)
	}
	for text, wrong := range map[string]bool{
		`{"apiVersion":"v1","kind":"Service","spec":{"ports":[{"port":80}]}}`:   false,
		`{"apiVersion":"v1","kind":"Service","spec":{"ports":[{"port":"80"}]}}`: true,
		`{"apiVersion":"v1","kind":"Service","spec":{"prots":[{"port":80}]}}`:   true,
	} {
		value, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		if err := schema.Validate(value); (err != nil) != wrong {
			t.Errorf("%s: %v", text, err)
		}
	}
}
