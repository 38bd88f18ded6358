// Package arrows holds no code, only the tests that keep the shape of this repository:
// which package may import which, how long files and functions may be, and what may
// not be named anywhere. It does not test behaviour.
//
// ARCHITECTURE.md draws the map that the table below repeats.
package arrows

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module = "idemproxy"

// A room is one row of the map: a directory and everything below it.
type room struct {
	imports []string // rooms below internal/ that its code may import
	tests   []string // further rooms that its tests may import
	forbids []string // other packages, and what is below them, that its code may not import
}

// rooms is the map. A package below internal/ that is not on it fails the tests; a
// package elsewhere that is not on it may import nothing below internal/.
var rooms = map[string]room{
	"cmd/idemproxy":    {imports: []string{"config", "proxy", "store", "dedup", "metrics"}},
	"internal/config":  {imports: []string{"proxy", "store", "dedup"}, forbids: []string{"flag", "github.com/spf13/cobra"}},
	"internal/proxy":   {imports: []string{"dedup", "metrics"}, tests: []string{"store"}, forbids: commandLine},
	"internal/store":   {imports: []string{"dedup", "metrics"}, forbids: append([]string{"net/http"}, commandLine...)},
	"internal/dedup":   {tests: []string{"store"}, forbids: []string{"net/http", "flag"}},
	"internal/metrics": {forbids: commandLine},
	"internal/arrows":  {},
	"bench/stores":     {imports: []string{"store", "dedup"}}, // what it measures has no HTTP
}

// commandLine is what only cmd may read; config may bind flags to settings.
var commandLine = []string{"flag", "github.com/spf13/cobra", "github.com/spf13/pflag", "github.com/spf13/viper"}

// A goPackage is what `go list` tells about one package.
type goPackage struct {
	ImportPath                         string
	Imports, TestImports, XTestImports []string
}

func TestImportsFollowTheMap(t *testing.T) {
	for _, p := range listPackages(t) {
		for _, fault := range faults(p) {
			t.Error(fault)
		}
	}
}

// TestMapIsEnforced proves that each kind of wrong import is found.
func TestMapIsEnforced(t *testing.T) {
	pkg := func(dir string) string { return module + "/" + dir }
	for _, tc := range []struct {
		from, imports string
		test, wrong   bool
	}{
		{from: "cmd/idemproxy", imports: pkg("internal/config")},
		{from: "internal/proxy", imports: pkg("internal/dedup")},
		{from: "internal/store/storetest", imports: pkg("internal/store")},
		{from: "internal/proxy", imports: pkg("internal/store"), test: true},
		{from: "internal/dedup", imports: "pgregory.net/rapid", test: true},
		{from: "internal/dedup", imports: "crypto/sha256"},
		{from: "internal/proxy", imports: pkg("internal/store"), wrong: true},
		{from: "internal/proxy", imports: pkg("internal/config"), test: true, wrong: true},
		{from: "internal/store", imports: pkg("internal/proxy"), wrong: true},
		{from: "internal/store/storetest", imports: "net/http/httptest", wrong: true},
		{from: "internal/dedup", imports: "go.uber.org/zap", wrong: true},
		{from: "internal/dedup", imports: "net/http", wrong: true},
		{from: "internal/metrics", imports: pkg("internal/dedup"), wrong: true},
		{from: "internal/config", imports: pkg("internal/metrics"), wrong: true},
		{from: "internal/helpers", imports: "fmt", wrong: true},
		{from: "test/e2e", imports: pkg("internal/dedup"), test: true, wrong: true},
		{from: "bench", imports: pkg("internal/proxy"), wrong: true},
		{from: "bench/stores", imports: pkg("internal/store")},
		{from: "bench/stores", imports: pkg("internal/proxy"), wrong: true},
		{from: "internal/metrics", imports: "flag", wrong: true},
	} {
		p := goPackage{ImportPath: pkg(tc.from), Imports: []string{tc.imports}}
		if tc.test {
			p.Imports, p.XTestImports = nil, p.Imports
		}
		if got := faults(p); (len(got) > 0) != tc.wrong {
			t.Errorf("%s importing %s (test: %v): faults %v, want some: %v", tc.from, tc.imports, tc.test, got, tc.wrong)
		}
	}
}

// faults returns what is wrong with the imports of p.
func faults(p goPackage) []string {
	dir := strings.TrimPrefix(p.ImportPath, module+"/")
	name := roomOf(dir)
	r, known := rooms[name]
	if !known && strings.HasPrefix(dir, "internal/") {
		return []string{dir + " is not on the map in internal/arrows: a new room is a decision, not an accident"}
	}
	var found []string
	for _, imp := range p.Imports {
		switch {
		case !mayImport(name, r.imports, imp):
			found = append(found, fmt.Sprintf("%s must not import %s", dir, imp))
		case slices.ContainsFunc(r.forbids, func(f string) bool { return within(imp, f) }):
			found = append(found, fmt.Sprintf("%s must not import %s", dir, imp))
		case name == "internal/dedup" && !internalTo(imp) && !standard(imp):
			found = append(found, fmt.Sprintf("%s imports the standard library only, not %s", dir, imp))
		}
	}
	allowed := slices.Concat(r.imports, r.tests)
	for _, imp := range slices.Concat(p.TestImports, p.XTestImports) {
		if !mayImport(name, allowed, imp) {
			found = append(found, fmt.Sprintf("the tests of %s must not import %s", dir, imp))
		}
	}
	return found
}

// mayImport reports whether code in the room called name may import imp, as far as
// our own packages go.
func mayImport(name string, allowed []string, imp string) bool {
	dir, ours := strings.CutPrefix(imp, module+"/")
	if !ours || roomOf(dir) == name {
		return true
	}
	target, internal := strings.CutPrefix(roomOf(dir), "internal/")
	return internal && slices.Contains(allowed, target)
}

// roomOf is the room that a directory belongs to: its first two elements.
func roomOf(dir string) string {
	parts := strings.Split(dir, "/")
	return path.Join(parts[:min(2, len(parts))]...)
}

func within(imp, prefix string) bool { return imp == prefix || strings.HasPrefix(imp, prefix+"/") }
func internalTo(imp string) bool     { return within(imp, module) }

// standard reports whether imp is a package of the standard library: those have no dot
// in their first element.
func standard(imp string) bool {
	first, _, _ := strings.Cut(imp, "/")
	return !strings.Contains(first, ".")
}

// listPackages asks go list, which also lists packages that do not build (-e): the
// compiler tells about those.
func listPackages(t *testing.T) []goPackage {
	t.Helper()
	cmd := exec.Command("go", "list", "-e", "-json=ImportPath,Imports,TestImports,XTestImports", "./...")
	cmd.Dir = root(t)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	var list []goPackage
	for d := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p goPackage
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("read the output of go list: %v", err)
		}
		list = append(list, p)
	}
	return list
}

// root is the repository's directory.
func root(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "go.mod")); err != nil {
		t.Fatal(err)
	}
	return dir
}
