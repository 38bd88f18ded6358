package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestCommandsInSentences: the commands that documents name within a sentence exist, with
// these flags and arguments. (What stands in blocks is run: see test/documents.)
func TestCommandsInSentences(t *testing.T) {
	pages, err := filepath.Glob("../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, page := range append(pages, "../../README.md", "../../CONTRIBUTING.md", "../../ARCHITECTURE.md") {
		content, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile("`(?:bin/)?idemproxy ([^`|…]+)`").FindAllStringSubmatch(string(content), -1) {
			found++
			args := words(m[1])
			root := newRoot()
			root.InitDefaultCompletionCmd()
			command, rest, err := root.Find(args)
			if err != nil || !command.HasParent() {
				t.Errorf("%s: idemproxy %s: no such command: %v", page, m[1], err)
				continue
			}
			command.InitDefaultHelpFlag()
			if err := command.ParseFlags(rest); err != nil {
				t.Errorf("%s: idemproxy %s: %v", page, m[1], err)
			} else if err := command.ValidateArgs(command.Flags().Args()); err != nil && command.Runnable() && strings.Contains(m[1], " -") {
				t.Errorf("%s: idemproxy %s: %v", page, m[1], err)
			}
		}
	}
	if found < 20 {
		t.Errorf("%d commands: is that still how they are written?", found)
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
