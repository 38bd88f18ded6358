package arrows

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestGuaranteesNameTheirTests: each statement of docs/guarantees.md, a row of a table,
// names a test that shows it, and each test that the page names exists.
func TestGuaranteesNameTheirTests(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(root(t), "docs", "guarantees.md"))
	if err != nil {
		t.Fatal(err)
	}
	named := regexp.MustCompile("`([\\w./]+_test\\.go):(Test\\w+)`")
	statements := 0
	for line := range strings.Lines(string(page)) {
		tests := named.FindAllStringSubmatch(line, -1)
		switch isRow := strings.HasPrefix(line, "| ") && !strings.HasPrefix(line, "| ---") && !strings.HasSuffix(strings.TrimSpace(line), "| shown by |"); {
		case isRow && len(tests) == 0:
			t.Errorf("no test shows that %.100s", line)
		case isRow:
			statements++
		}
		for _, m := range tests {
			file, test := m[1], m[2]
			if !strings.Contains(file, "/") {
				file = "test/e2e/" + file
			}
			source, err := os.ReadFile(filepath.Join(root(t), file))
			if err != nil {
				t.Error(err)
			} else if !strings.Contains(string(source), "\nfunc "+test+"(") {
				t.Errorf("%s has no %s, which docs/guarantees.md names", file, test)
			}
		}
	}
	if statements < 20 {
		t.Errorf("the page has %d statements: is it still a page of tables?", statements)
	}
}
