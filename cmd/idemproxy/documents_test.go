package main

import (
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestOperationsPage: the commands that docs/operations.md tells people to type exist, with
// these flags and arguments, and its configurations are right.
func TestOperationsPage(t *testing.T) {
	content, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	page := regexp.MustCompile(`(?m)^ +`).ReplaceAllString(string(content), "") // blocks in lists
	commands := regexp.MustCompile("(?m)(?:^|`)idemproxy (.+?)(?:`|$)").FindAllStringSubmatch(page, -1)
	for _, m := range commands {
		args := words(m[1])
		command, rest, err := newRoot().Find(args)
		if err != nil || !command.HasParent() {
			t.Errorf("idemproxy %s: no such command: %v", m[1], err)
			continue
		}
		if err := command.ParseFlags(rest); err != nil {
			t.Errorf("idemproxy %s: %v", m[1], err)
		} else if err := command.ValidateArgs(command.Flags().Args()); err != nil && command.Runnable() && strings.Contains(m[1], " -") {
			t.Errorf("idemproxy %s: %v", m[1], err)
		}
	}
	blocks := regexp.MustCompile("(?ms)^```yaml$\n(.*?\n)```$").FindAllStringSubmatch(string(content), -1)
	for _, m := range blocks {
		file := filepath.Join(t.TempDir(), "idemproxy.yaml")
		if err := os.WriteFile(file, []byte(m[1]), 0o600); err != nil {
			t.Fatal(err)
		}
		var errs strings.Builder
		if exit := run([]string{"validate", file}, io.Discard, &errs); exit != exitFine {
			t.Errorf("%s\n%s", m[1], errs.String())
		}
	}
	if len(commands) < 10 || len(blocks) < 2 {
		t.Errorf("%d commands and %d configurations: is it still that page?", len(commands), len(blocks))
	}
}

// words are the words of a command line, as a shell makes them of words and single quotes.
func words(line string) []string {
	var found []string
	for _, m := range regexp.MustCompile(`'([^']*)'|(\S+)`).FindAllStringSubmatch(line, -1) {
		found = append(found, m[1]+m[2])
	}
	return found
}
