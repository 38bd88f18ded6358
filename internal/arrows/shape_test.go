package arrows

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const (
	maxFileLines     = 300
	maxFunctionLines = 50 // between the braces
)

// TestSize keeps files and functions short, and code free of what acts behind the
// reader's back: init functions, and the command line read below cmd.
func TestSize(t *testing.T) {
	for _, file := range repositoryFiles(t) {
		if !strings.HasSuffix(file, ".go") || strings.HasSuffix(file, "_test.go") {
			continue
		}
		set := token.NewFileSet()
		tree, err := parser.ParseFile(set, filepath.Join(root(t), file), nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			t.Error(err)
			continue
		}
		if ast.IsGenerated(tree) {
			continue
		}
		// The conformance suite is tests that are not in a _test.go file: tables of cases.
		isSuite := strings.HasPrefix(file, "internal/store/storetest/")
		line := func(p token.Pos) int { return set.Position(p).Line }
		if n := set.File(tree.FileStart).LineCount(); n > maxFileLines {
			t.Errorf("%s has %d lines, more than %d: split it by what changes together", file, n, maxFileLines)
		}
		ast.Inspect(tree, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				if lines := bodyLines(n, line); lines > maxFunctionLines && !isSuite {
					t.Errorf("%s:%d: %s has %d lines, more than %d", file, line(n.Pos()), n.Name.Name, lines, maxFunctionLines)
				}
				if n.Name.Name == "init" && n.Recv == nil {
					t.Errorf("%s:%d: no init functions: wire it in cmd", file, line(n.Pos()))
				}
			case *ast.SelectorExpr:
				if x, ok := n.X.(*ast.Ident); ok && x.Name == "os" && n.Sel.Name == "Args" && strings.HasPrefix(file, "internal/") {
					t.Errorf("%s:%d: only cmd reads os.Args", file, line(n.Pos()))
				}
			}
			return true
		})
	}
}

// bodyLines counts the lines between the braces of fn.
func bodyLines(fn *ast.FuncDecl, line func(token.Pos) int) int {
	if fn.Body == nil {
		return 0
	}
	return line(fn.Body.Rbrace) - line(fn.Body.Lbrace) - 1
}

// TestNamesNoForeignHost keeps out of the tree what only holds where somebody works:
// the hosts of package registries and mirrors, and addresses of private networks.
func TestNamesNoForeignHost(t *testing.T) {
	for _, file := range repositoryFiles(t) {
		content, err := os.ReadFile(filepath.Join(root(t), file))
		if err != nil {
			t.Error(err)
			continue
		}
		for _, pattern := range foreignHosts() {
			if at := pattern.FindIndex(content); at != nil {
				line := bytes.Count(content[:at[0]], []byte("\n")) + 1
				t.Errorf("%s:%d: names %s", file, line, content[at[0]:at[1]])
			}
		}
	}
}

func TestForeignHostsAreFound(t *testing.T) {
	for _, tc := range []struct {
		text  string
		found bool
	}{
		{"https://" + "registry." + "npmjs.org/stripe", true},
		{"GOPROXY=" + "proxy." + "golang.org", true},
		{"https://" + "10.1.2.3:8080/", true},
		{"http://" + "mirror.corp/debian", true},
		{"http://127.0.0.1:8080/ and http://example.com/internal", false},
		{"trusted: [10.0.0.0/8]", false},
		{"http://" + "172.20.0.7/", true},
		{"http://10.0.0.1:3000", false},
		{"http://payments.default.svc.cluster.local", false},
		{"http://host.docker.internal:3000", false},
	} {
		match := func(p *regexp.Regexp) bool { return p.MatchString(tc.text) }
		if got := slices.ContainsFunc(foreignHosts(), match); got != tc.found {
			t.Errorf("%q: found %v, want %v", tc.text, got, tc.found)
		}
	}
}

// foreignHosts is written in pieces, so that this file does not name them either.
func foreignHosts() []*regexp.Regexp {
	var hosts []string
	for _, h := range [][]string{
		{"proxy", "golang", "org"},
		{"sum", "golang", "org"},
		{"goproxy", "(io|cn)"},
		{"registry", "npmjs", "org"},
		{"registry", "yarnpkg", "com"},
		{"(deb|security|ftp|snapshot)", "debian", "org"},
		{"(files.pythonhosted|pypi)", "org"},
		{"(static|index)", "crates", "io"},
		{"repo1?", "maven", "(apache|org)"},
		{"rubygems", "org"},
	} {
		hosts = append(hosts, strings.Join(h, `\.`))
	}
	return []*regexp.Regexp{
		regexp.MustCompile(`(?i)\b(` + strings.Join(hosts, "|") + `)\b`),
		// 10.0.0.x is everybody's example.
		regexp.MustCompile(`https?://(10\.([1-9]\d*\.\d+|0\.[1-9]\d*)|192\.168\.\d+|172\.(1[6-9]|2\d|3[01])\.\d+)\.\d+`),
		regexp.MustCompile(`https?://[\w.-]+\.(corp|lan|intranet)\b`),
	}
}

// repositoryFiles lists the files of the repository, by path from its root, without
// what is built, fetched or kept for one machine.
func repositoryFiles(t *testing.T) []string {
	t.Helper()
	skip := []string{".git", ".cache", "bin", "dist", "node_modules"}
	dir := root(t)
	var files []string
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && slices.Contains(skip, d.Name()):
			return filepath.SkipDir
		case d.Type().IsRegular():
			rel, err := filepath.Rel(dir, p)
			files = append(files, filepath.ToSlash(rel))
			return err
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}
