package config

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// An Origin is where a setting was given: a place in a file, an environment variable or
// a flag.
type Origin struct {
	// Source is the file's name, "environment NAME" or "flag --name".
	Source string
	// Line and Column count from 1; both are 0 outside of files.
	Line, Column int
}

// String is file:line:column, or the source alone.
func (o Origin) String() string {
	if o.Line == 0 {
		return o.Source
	}
	return fmt.Sprintf("%s:%d:%d", o.Source, o.Line, o.Column)
}

// A Fault is one thing that is wrong with a configuration, with its place.
type Fault struct {
	Origin Origin
	// Path names the setting, such as routes[2].ttl; empty for the document itself.
	Path string
	// Message says what is wrong and what would be right. It never repeats a value.
	Message string
}

// String is one line: place, path and message.
func (f Fault) String() string {
	if f.Path == "" {
		return f.Origin.String() + ": " + f.Message
	}
	return f.Origin.String() + ": " + f.Path + ": " + f.Message
}

// Warning is the line of a warning: place, path and message.
func (f Fault) Warning() string {
	return f.Origin.String() + ": warning: " + strings.TrimPrefix(f.Path+": ", ": ") + f.Message
}

// An Error is everything that is wrong with a configuration, in the order of the file;
// environment and flags come after it.
type Error struct {
	Faults []Fault
	// Understood is what the rest of it says, for who needs only that and asks In for the
	// faults in it; nil where nothing could be read.
	Understood *Config
}

// Error is one line a fault.
func (e *Error) Error() string {
	lines := make([]string, len(e.Faults))
	for i, f := range e.Faults {
		lines[i] = f.String()
	}
	return strings.Join(lines, "\n")
}

// In is the first fault at a setting, in it or around it, or nil.
func (e *Error) In(path string) *Fault {
	for i, f := range e.Faults {
		if f.Path == "" || under(f.Path, path) || under(path, f.Path) {
			return &e.Faults[i]
		}
	}
	return nil
}

// under reports whether path is that of a setting, or of one inside it.
func under(path, setting string) bool {
	rest, ok := strings.CutPrefix(path, setting)
	return ok && (rest == "" || rest[0] == '.' || rest[0] == '[')
}

// sorted orders faults by place, and drops those said twice.
func sorted(faults []Fault) []Fault {
	slices.SortStableFunc(faults, func(a, b Fault) int {
		return cmp.Or(
			-cmp.Compare(min(a.Origin.Line, 1), min(b.Origin.Line, 1)),
			cmp.Compare(a.Origin.Line, b.Origin.Line),
			cmp.Compare(a.Origin.Column, b.Origin.Column),
			cmp.Compare(a.Origin.Source, b.Origin.Source),
		)
	})
	return slices.Compact(faults)
}

// parent is the path of the node around a path: routes[2].ttl → routes[2] → routes → "".
func parent(path string) string {
	return path[:max(0, strings.LastIndexAny(path, ".["))]
}
