//go:build unix

package documents

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// A block is a fenced block of a document.
type block struct {
	place string // FILE:LINE
	info  string // all of the info string
	lang  string // its first word
	mark  string // the rest: "", "fragment", "untested: WHY" or "elsewhere: make TARGET"
	text  string // without the indentation of a block in a list
}

var fence = regexp.MustCompile("^( *)(```+)(.*)$")

// blocks are those of a document, in order.
func blocks(t *testing.T, name string) (found []block) {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	var open *block
	var indent, ticks string
	for i, line := range strings.Split(string(content), "\n") {
		m := fence.FindStringSubmatch(line)
		switch {
		case open == nil && m != nil:
			indent, ticks = m[1], m[2]
			open = &block{place: fmt.Sprintf("%s:%d", name, i+1), info: strings.TrimSpace(m[3])}
			open.lang, open.mark, _ = strings.Cut(open.info, " ")
		case open != nil && m != nil && m[2] == ticks && m[3] == "":
			found, open = append(found, *open), nil
		case open != nil:
			open.text += strings.TrimPrefix(line, indent) + "\n"
		}
	}
	if open != nil {
		t.Errorf("%s: the block has no end", open.place)
	}
	return found
}

// heading makes the anchor that a link to a heading names.
func heading(line string) string {
	line = regexp.MustCompile(`\[([^]]*)\]\([^)]*\)`).ReplaceAllString(strings.ToLower(strings.TrimLeft(line, "# ")), "$1")
	return strings.ReplaceAll(regexp.MustCompile(`[^\p{L}\p{N} _-]`).ReplaceAllString(line, ""), " ", "-")
}

// prose is a document without its blocks.
func prose(t *testing.T, name string) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	return fenced.ReplaceAllString(string(content), "")
}

var (
	fenced   = regexp.MustCompile("(?m)^ *```(?s:.*?)\n *```$")
	headings = regexp.MustCompile(`(?m)^#+ .*$`)
	links    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
)

// TestLinks: what a document links to in the repository is there, and so is the heading.
func TestLinks(t *testing.T) {
	for _, name := range documents(t) {
		for _, m := range links.FindAllStringSubmatch(prose(t, name), -1) {
			path, anchor, _ := strings.Cut(m[1], "#")
			if strings.Contains(path, ":") {
				continue // an address
			}
			to := name
			if path != "" {
				to = filepath.Join(filepath.Dir(name), path)
			}
			if _, err := os.Stat(filepath.Join(root, to)); err != nil {
				t.Errorf("%s: the link to %s leads nowhere", name, m[1])
				continue
			}
			if anchor == "" {
				continue
			}
			found := false
			for _, h := range headings.FindAllString(prose(t, to), -1) {
				found = found || heading(h) == anchor
			}
			if !found {
				t.Errorf("%s: %s has no heading for #%s", name, to, anchor)
			}
		}
	}
}
