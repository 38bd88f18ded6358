package config

import (
	"fmt"
	"io"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"idemproxy/internal/dedup"
)

// Sources are where a configuration comes from, besides the environment.
type Sources struct {
	// File is read if it is named; it is also its name in faults.
	File string
	// Text is read instead where no File is named.
	Text string
	// Flags maps the path of a setting to the flag that overrides it, if it was given.
	Flags map[string]*pflag.Flag
}

// maxFile bounds a file: a wrong one must not take a running proxy's memory and time.
const maxFile = 4 << 20

func readFile(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(data) > maxFile {
		err = fmt.Errorf("%s is larger than %v, and no configuration", name, dedup.Size(maxFile))
	}
	return data, err
}

// Load reads a configuration and checks it. What is wrong with it is an *Error; any
// other error means that the file could not be read.
func Load(from Sources) (*Config, error) {
	name, data := "built-in configuration", []byte(from.Text)
	if from.File != "" {
		var err error
		if data, err = readFile(from.File); err != nil {
			return nil, fmt.Errorf("read configuration: %w", err)
		}
		name = from.File
	}
	root, faults := document(name, data)
	if from.File != "" && len(faults) == 0 && (root == nil || root.kind == null) {
		faults = []Fault{{Origin{name, 1, 1}, "", "is empty, as a file that was cut off is; a configuration that guards nothing says `routes: []`"}}
		root = nil
	}
	cfg := Default()
	d := &decoder{
		lookup:  os.LookupEnv,
		element: cfg.element,
		origins: map[string]Origin{"": {name, 1, 1}},
		failed:  map[string]bool{},
		faults:  faults,
	}
	if root == nil && len(faults) > 0 {
		return nil, &Error{Faults: sorted(faults)} // nothing was understood: what else is wrong can't be said
	}
	cfg.origins = d.origins
	d.all(root, &cfg, from.Flags)
	d.check(&cfg)
	if len(d.faults) > 0 {
		return nil, &Error{Faults: sorted(d.faults), Understood: &cfg}
	}
	return &cfg, nil
}

// element is what an element of a list of sections starts from.
func (c *Config) element(t reflect.Type) reflect.Value {
	if t == reflect.TypeFor[dedup.Rule]() {
		return clone(reflect.ValueOf(c.Defaults))
	}
	return reflect.Zero(t)
}

// all reads every source over cfg. Defaults are complete before the first route starts
// from them.
func (d *decoder) all(root *node, cfg *Config, flags map[string]*pflag.Flag) {
	defaults := reflect.ValueOf(&cfg.Defaults).Elem()
	if root != nil {
		if p, ok := root.get("defaults"); ok {
			d.decode(d.defaults(p.value), defaults, "defaults")
			root.pairs = slices.DeleteFunc(root.pairs, func(p pair) bool { return p.key == "defaults" })
		}
	}
	d.override(defaults, "defaults", flags)
	whole := reflect.ValueOf(cfg).Elem()
	if root != nil && root.kind != null {
		d.decode(root, whole, "")
	}
	for i, name := range fieldNames(whole.Type()) {
		if name != "" && name != "defaults" {
			d.override(whole.Field(i), name, flags)
		}
	}
}

// defaults is the section without the keys that only a route can have.
func (d *decoder) defaults(n *node) *node {
	kept := *n
	kept.pairs = nil
	for _, p := range n.pairs {
		if inDefaults("defaults", p.key) {
			d.fault(p.origin, "defaults."+p.key, "belongs to a single route; defaults set any field of a route but %s", strings.Join(ownKeys(), ", "))
			continue
		}
		kept.pairs = append(kept.pairs, p)
	}
	return &kept
}

// check adds what the packages find wrong, each at its setting or the nearest place
// around it.
func (d *decoder) check(cfg *Config) {
	faults := cfg.Validate()
	for _, f := range faults {
		if d.known(f, faults) {
			continue
		}
		d.faults = append(d.faults, Fault{d.nearest(f.Path), f.Path, f.Message})
	}
}

// nearest is where a setting was given, or something in it, or the nearest around it.
func (d *decoder) nearest(path string) Origin { return placeOf(d.origins, path) }

func placeOf(origins map[string]Origin, path string) Origin {
	if at, set := origins[path]; set {
		return at
	}
	for _, p := range slices.Sorted(maps.Keys(origins)) {
		if strings.HasPrefix(p, path+".") {
			return origins[p]
		}
	}
	if path == "" {
		return Origin{}
	}
	return placeOf(origins, parent(path))
}

// known reports whether a fault follows from one that was said already: the setting
// could not be read, or a route only took it from defaults.
func (d *decoder) known(f dedup.Fault, all []dedup.Fault) bool {
	for at := f.Path; at != ""; at = parent(at) {
		if d.failed[at] {
			return true
		}
	}
	route, field, ok := strings.Cut(f.Path, "].")
	if !ok || !strings.HasPrefix(route, "routes[") {
		return false
	}
	for at := f.Path; at != route+"]"; at = parent(at) {
		if _, own := d.origins[at]; own {
			return false
		}
	}
	return slices.Contains(all, dedup.Fault{Path: "defaults." + field, Message: f.Message}) || d.failed["defaults."+field]
}
