package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/invopop/jsonschema"
	checker "github.com/santhosh-tekuri/jsonschema/v6"

	"idemproxy/internal/dedup"
)

const (
	anyVariable = `\$\{`                                 // any value may be, or hold, ${VAR}
	aDuration   = `^([0-9]+(\.[0-9]+)?(h|m|s|ms))+$|^0$` // of Go
	aSize       = `^[0-9]+ ?(B|KiB|MiB|GiB)?$`
)

// TestSchema keeps the schema and the configuration reference what the Go types, their
// comments and their defaults make of them. UPDATE_GOLDEN=1 writes both anew.
func TestSchema(t *testing.T) {
	s := newSchema(t)
	text, err := json.MarshalIndent(s, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "schema.json", append(text, '\n'))
	golden(t, "../../docs/configuration.md", settingsPage(s))
}

// TestSchemaAgreesWithTheLoader: what the schema accepts is what loads, for the shipped
// configurations and every fixture that is wrong in a way a schema can know.
func TestSchemaAgreesWithTheLoader(t *testing.T) {
	compiled := compile(t)
	shipped, _ := filepath.Glob("../../configs/*.yaml")
	good, _ := filepath.Glob("testdata/*.good.yaml")
	good = slices.DeleteFunc(good, func(file string) bool {
		return filepath.Base(file) == "sections.good.yaml" // sections with nothing in them: the schema knows no null
	})
	for _, file := range slices.Concat(shipped, good) {
		if err := compiled.Validate(parsed(t, file)); err != nil {
			t.Errorf("%s: %v", file, err)
		}
	}
	for _, text := range []string{
		"severs: {}", "routes: {}", "routes: [{name: a}]", "routes: [{name: a, path: /, tll: 1h}]", "defaults: {name: a}",
		"routes: [{name: a, path: /, ttl: 24}]", "routes: [{name: a, path: /, mode: on}]", "log: {level: loud}",
		"store: {type: sqlite}", "store: {memory: {max_bytes: 1MB}}", "server: {drain_delay: soon}", "admin: {ready_requires_store: 1}",
		"routes: [{name: a, path: /, errors: {codes: {key_resue: X}}}]",
	} {
		var value any
		if err := yaml.Unmarshal([]byte(text), &value); err != nil {
			t.Fatal(err)
		}
		if compiled.Validate(plain(t, value)) == nil {
			t.Errorf("the schema accepts %s", text)
		}
		if _, err := Load(Sources{Text: text}); err == nil {
			t.Errorf("the loader accepts %s", text)
		}
	}
}

// TestShippedConfigurationsNameTheSchema, so that editors help.
func TestShippedConfigurationsNameTheSchema(t *testing.T) {
	files, _ := filepath.Glob("../../configs/*.yaml")
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		name, ok := strings.CutPrefix(strings.SplitN(string(text), "\n", 2)[0], "# yaml-language-server: $schema=")
		if !ok || filepath.Join(filepath.Dir(file), name) != filepath.Clean("../../internal/config/schema.json") {
			t.Errorf("%s: its first line names no schema: %q", file, name)
		}
	}
}

func compile(t *testing.T) *checker.Schema {
	t.Helper()
	value, err := checker.UnmarshalJSON(bytes.NewReader(Schema()))
	if err != nil {
		t.Fatal(err)
	}
	c := checker.NewCompiler()
	if err := c.AddResource("schema.json", value); err != nil {
		t.Fatal(err)
	}
	compiled, err := c.Compile("schema.json")
	if err != nil {
		t.Fatal(err)
	}
	return compiled
}

// parsed is a YAML file as a schema sees it.
func parsed(t *testing.T, file string) any {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var value any
	if err := yaml.Unmarshal(text, &value); err != nil && !errors.Is(err, io.EOF) {
		t.Fatalf("%s: %v", file, err)
	}
	if value == nil {
		value = map[string]any{}
	}
	return plain(t, value)
}

// plain is a value in the types of JSON.
func plain(t *testing.T, value any) any {
	t.Helper()
	text, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	out, err := checker.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func newSchema(t *testing.T) *jsonschema.Schema {
	t.Helper()
	r := &jsonschema.Reflector{FieldNameTag: "yaml", RequiredFromJSONSchemaTags: true, DoNotReference: true, Anonymous: true}
	words := map[string][]any{}
	for _, room := range []string{"config", "dedup", "proxy", "store"} {
		if err := r.AddGoComments("idemproxy/internal/config", "../"+room, jsonschema.WithFullComment()); err != nil {
			t.Fatal(err)
		}
		constants(t, room, words)
	}
	r.LookupComment = func(t reflect.Type, name string) string {
		if name == "" {
			return "" // the type's own is found without help
		}
		comment := r.CommentMap[t.PkgPath()+"."+t.Name()+"."+name]
		if field, ok := t.FieldByName(name); ok { // people know it by its key
			if rest, named := strings.CutPrefix(comment, name+" "); named {
				return field.Tag.Get("yaml") + " " + rest
			}
		}
		return comment
	}
	r.Mapper = func(t reflect.Type) *jsonschema.Schema { return scalarSchema(t, words) }
	s := r.Reflect(Config{})
	s.Title, s.Description = "Configuration of idemproxy", "See `idemproxy validate`, which also checks what a schema can't."
	s.ID = ""
	routes, _ := s.Properties.Get("routes")
	routes.Items.Required = []string{"name", "path"}
	defaults, _ := s.Properties.Get("defaults")
	for _, own := range ownKeys() {
		defaults.Properties.Delete(own)
	}
	store, _ := s.Properties.Get("store")
	kind, _ := store.Properties.Get("type")
	kind.Type, kind.AnyOf = "", []*jsonschema.Schema{{Enum: []any{"memory", "file", "redis", "postgres"}}, {Type: "string", Pattern: anyVariable}}
	withDefaults(s, reflect.ValueOf(Default()))
	return s
}

// scalarSchema is the schema of what is written as one value; nil for anything else. It is
// never shared: descriptions and defaults are each setting's own.
func scalarSchema(t reflect.Type, words map[string][]any) *jsonschema.Schema {
	text := &jsonschema.Schema{Type: "string", Pattern: anyVariable}
	either := func(s ...*jsonschema.Schema) *jsonschema.Schema { return &jsonschema.Schema{AnyOf: append(s, text)} }
	switch {
	case t == reflect.TypeFor[time.Duration]():
		return either(&jsonschema.Schema{Type: "string", Pattern: aDuration})
	case t == reflect.TypeFor[dedup.Size]():
		return either(&jsonschema.Schema{Type: "integer", Minimum: "0"}, &jsonschema.Schema{Type: "string", Pattern: aSize})
	case t == reflect.TypeFor[dedup.StatusSet]():
		return either(&jsonschema.Schema{Type: "integer", Minimum: "200", Maximum: "599"}, &jsonschema.Schema{Type: "string", Pattern: "^[2-5]([0-9][0-9]|xx)$"})
	case t == reflect.TypeFor[dedup.Names]():
		return &jsonschema.Schema{AnyOf: []*jsonschema.Schema{{Type: "string"}, {Type: "array", Items: &jsonschema.Schema{Type: "string"}}}}
	case t.Kind() == reflect.Map && t.Key() == reflect.TypeFor[dedup.Reason]():
		names := &jsonschema.Schema{}
		for _, reason := range dedup.Reasons() {
			names.Enum = append(names.Enum, string(reason))
		}
		return &jsonschema.Schema{Type: "object", PropertyNames: names, AdditionalProperties: &jsonschema.Schema{Type: "string"}}
	case !isScalar(t):
		return nil
	case t.Kind() == reflect.Bool:
		return either(&jsonschema.Schema{Type: "boolean"})
	case t.Kind() == reflect.Int:
		return either(&jsonschema.Schema{Type: "integer"})
	case t.Kind() == reflect.Float64:
		return either(&jsonschema.Schema{Type: "number"})
	case t.Kind() == reflect.String && words[t.String()] != nil:
		return either(&jsonschema.Schema{Enum: words[t.String()]})
	case t.Kind() == reflect.String:
		return &jsonschema.Schema{Type: "string"}
	default:
		return nil
	}
}

// constants collects the words of a package's string types, such as dedup.Mode.
func constants(t *testing.T, room string, words map[string][]any) {
	t.Helper()
	test := func(f fs.FileInfo) bool { return !strings.HasSuffix(f.Name(), "_test.go") }
	packages, err := parser.ParseDir(token.NewFileSet(), "../"+room, test, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range packages[room].Files {
		ast.Inspect(file, func(n ast.Node) bool {
			spec, ok := n.(*ast.ValueSpec)
			if !ok || len(spec.Values) != 1 {
				return true
			}
			kind, named := spec.Type.(*ast.Ident)
			literal, isText := spec.Values[0].(*ast.BasicLit)
			if named && isText && literal.Kind == token.STRING && kind.Name != "Reason" {
				word, _ := strconv.Unquote(literal.Value)
				words[room+"."+kind.Name] = append(words[room+"."+kind.Name], word)
			}
			return true
		})
	}
}

// withDefaults notes at each setting what it is when nobody sets it.
func withDefaults(s *jsonschema.Schema, v reflect.Value) {
	for i, name := range fieldNames(v.Type()) {
		field := v.Field(i)
		property, ok := s.Properties.Get(name)
		switch {
		case name == "" || !ok:
		case field.Kind() == reflect.Struct && !isScalar(field.Type()):
			withDefaults(property, field)
		case isSections(field.Type()):
			if start := (&Config{Defaults: dedup.DefaultRule()}).element(field.Type().Elem()); property.Items != nil && start.NumField() > 4 {
				withDefaults(property.Items, start)
			}
		case field.Kind() == reflect.Pointer:
		case field.Kind() == reflect.Map:
			property.Default = map[string]any{}
		default:
			property.Default = printable(field, name)
		}
	}
}

const settingsIntroduction = `# Configuration

<!-- Made from the Go types and their comments: UPDATE_GOLDEN=1 go test ./internal/config -run Schema -->

Everything that can be set in the file that "idemproxy serve --config FILE" reads: one YAML document, in which whatever is left out has
its default. [configs/idemproxy.yaml](../configs/idemproxy.yaml) is such a file with every setting in it, to copy from. "idemproxy validate FILE"
checks a file, and "idemproxy schema config" prints a schema by which editors check and complete one.

Durations need a unit (500ms, 10s, 24h). Sizes are bytes, or have one (64KiB, 1MiB). Inside values, ${VAR} and ${VAR:-default} are
expanded. Each setting can also be given by the environment, as IDEMPROXY_ and its path in capitals with _ for dots: IDEMPROXY_UPSTREAM_URL,
IDEMPROXY_DEFAULTS_TTL, IDEMPROXY_ROUTES_0_TTL for the first route. The environment goes before the file, a flag before both.
`

// settingsPage is the configuration reference for people.
func settingsPage(s *jsonschema.Schema) []byte {
	var b bytes.Buffer
	b.WriteString(settingsIntroduction)
	for p := s.Properties.Oldest(); p != nil; p = p.Next() {
		if p.Key == "defaults" {
			fmt.Fprintf(&b, "\n## defaults\n\n%s\n", withoutName(p.Key, sentence(p.Value.Description)))
			continue
		}
		section, under := p.Value, p.Key
		if section.Items != nil {
			section, under = section.Items, p.Key+"[]"
		}
		fmt.Fprintf(&b, "\n## %s\n\n%s\n\n| setting | default | meaning |\n| --- | --- | --- |\n", under, withoutName(p.Key, sentence(p.Value.Description)))
		rows(&b, section, "")
	}
	return b.Bytes()
}

func rows(b *bytes.Buffer, s *jsonschema.Schema, path string) {
	for p := s.Properties.Oldest(); p != nil; p = p.Next() {
		at, value := join(path, p.Key), ""
		if p.Value.Default != nil {
			text, _ := json.Marshal(p.Value.Default)
			value = "`" + string(text) + "`"
		}
		meaning := withoutName(p.Key, sentence(p.Value.Description))
		for _, one := range p.Value.AnyOf {
			if len(one.Enum) > 0 {
				meaning += " One of `" + strings.Trim(strings.ReplaceAll(fmt.Sprint(one.Enum), " ", "`, `"), "[]") + "`."
			}
		}
		fmt.Fprintf(b, "| `%s` | %s | %s |\n", at, value, strings.ReplaceAll(strings.TrimSpace(meaning), "|", `\|`))
		switch {
		case p.Value.Properties != nil && p.Value.Properties.Len() > 0:
			rows(b, p.Value, at)
		case p.Value.Items != nil && p.Value.Items.Properties != nil && p.Value.Items.Properties.Len() > 0:
			rows(b, p.Value.Items, at+"[]")
		}
	}
}

// withoutName takes a setting's name off its description, beside which it stands.
func withoutName(name, description string) string {
	rest, named := strings.CutPrefix(description, name+" ")
	if !named || rest == "" {
		return description
	}
	for _, verb := range []string{"is ", "are "} {
		rest = strings.TrimPrefix(rest, verb)
	}
	if first, _, _ := strings.Cut(rest, " "); strings.Contains(strings.TrimSuffix(first, ":"), ":") {
		return rest // an address
	}
	return strings.ToUpper(rest[:1]) + rest[1:]
}

// sentence is a comment on one line.
func sentence(comment string) string { return strings.Join(strings.Fields(comment), " ") }
