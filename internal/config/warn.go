package config

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"idemproxy/internal/dedup"
	"idemproxy/internal/proxy"
)

// Warnings are what is allowed and yet probably not meant, each with its place, in the
// order of the file. They are pure: environment is os.Environ's.
func (c *Config) Warnings(environment []string) []Fault {
	var found []dedup.Fault
	if len(c.Routes) == 0 {
		found = append(found, dedup.Fault{Path: "routes", Message: "there are none: every request passes through, none is guarded"})
	}
	for i := range c.Routes {
		found = append(found, below(fmt.Sprintf("routes[%d]", i), c.Routes[i].Warnings())...)
	}
	found = append(found, c.withoutEffect()...)
	found = append(found, proxy.RouteWarnings(c.Routes)...)
	enforces := func(r dedup.Rule) bool { return r.Mode == dedup.ModeEnforce }
	if inKubernetes(environment) && slices.ContainsFunc(c.Routes, enforces) {
		found = append(found, below("store", c.Store.WarningsAmongReplicas())...)
	}
	warnings := c.misspelt(environment)
	for _, f := range found {
		path := c.given(f.Path)
		warnings = append(warnings, Fault{placeOf(c.origins, path), path, f.Message})
	}
	return sorted(warnings)
}

func inKubernetes(environment []string) bool {
	return slices.ContainsFunc(environment, func(entry string) bool {
		host, set := strings.CutPrefix(entry, "KUBERNETES_SERVICE_HOST=")
		return set && host != ""
	})
}

// misspelt finds variables that are nearly the name of a setting's. Others may well begin
// as ours do: Kubernetes makes some for a Service called idemproxy.
func (c *Config) misspelt(environment []string) []Fault {
	var names []string
	leaves(reflect.ValueOf(c).Elem(), "", func(path string, _ reflect.Value) {
		names = append(names, strings.ToLower(EnvName(path)))
	})
	var found []Fault
	for _, entry := range environment {
		name, _, _ := strings.Cut(entry, "=")
		if !strings.HasPrefix(name, EnvName("")) {
			continue
		}
		if meant := strings.ToUpper(nearest(name, names)); meant != "" && meant != name {
			found = append(found, Fault{Origin{Source: "environment " + name}, "", "names no setting; did you mean " + meant + "?"})
		}
	}
	return found
}

// given is the path where a setting was given: that in defaults if the route took it from
// there.
func (c *Config) given(path string) string {
	if _, own := c.origins[path]; own {
		return path
	}
	if _, field, ok := strings.Cut(path, "]."); ok && strings.HasPrefix(path, "routes[") {
		if _, shared := c.origins["defaults."+field]; shared {
			return "defaults." + field
		}
	}
	return path
}

// withoutEffect finds settings of routes that change nothing. One that a route took from
// defaults may have its effect in another route.
func (c *Config) withoutEffect() []dedup.Fault {
	var found []dedup.Fault
	idle := map[string]int{} // in how many routes a setting of defaults changes nothing
	on := slices.DeleteFunc(slices.Clone(c.Routes), func(r dedup.Rule) bool { return r.Mode == dedup.ModeOff })
	for i := range c.Routes {
		at := fmt.Sprintf("routes[%d]", i)
		if c.Routes[i].Mode == dedup.ModeOff {
			found = append(found, c.idleOff(at)...)
			continue
		}
		for _, f := range below(at, c.Routes[i].WithoutEffect()) {
			path := c.given(f.Path)
			idle[path]++
			if path == f.Path || idle[path] == len(on) {
				found = append(found, dedup.Fault{Path: path, Message: f.Message})
			}
		}
	}
	return found
}

// idleOff finds the settings that a route has for the day when it is on again.
func (c *Config) idleOff(route string) []dedup.Fault {
	var names []string
	for path := range c.origins {
		rest, own := strings.CutPrefix(path, route+".")
		name := rest[:len(rest)-len(strings.TrimLeft(rest, "abcdefghijklmnopqrstuvwxyz_"))]
		if own && name != "mode" && !slices.Contains(ownKeys(), name) && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return nil
	}
	slices.Sort(names)
	return []dedup.Fault{{Path: route + ".mode", Message: fmt.Sprintf("is off, so that the route's other settings (%s) have no effect; leave them out, or set mode: observe to try them", strings.Join(names, ", "))}}
}
