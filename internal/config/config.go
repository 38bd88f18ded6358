package config

import (
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"

	"idemproxy/internal/dedup"
	"idemproxy/internal/proxy"
	"idemproxy/internal/store"
)

// A Config is everything that idemproxy can be told. Each section belongs to the package
// it configures.
type Config struct {
	// Server is where requests arrive.
	Server proxy.ServerConfig `yaml:"server"`
	// Admin is for probes and metrics; nothing on it changes anything.
	Admin proxy.AdminConfig `yaml:"admin"`
	// Control is for operators: keys, status, drain, reload and log level; off unless it is
	// given an address.
	Control proxy.ControlConfig `yaml:"control"`
	// Upstream is the service behind the proxy.
	Upstream proxy.UpstreamConfig `yaml:"upstream"`
	// Limits are for guarded requests; past either they get 503 overloaded, and nothing is
	// claimed.
	Limits proxy.LimitsConfig `yaml:"limits"`
	// Store holds claims and records. Only the section of the type that is chosen may be set.
	Store store.Config `yaml:"store"`
	// Log is what is written to standard error.
	Log LogConfig `yaml:"log"`
	// Tracing exports spans over OTLP.
	Tracing proxy.TracingConfig `yaml:"tracing"`
	// Defaults is what every route starts from; name, methods, host and path are no part
	// of it.
	Defaults dedup.Rule `yaml:"defaults"`
	// Routes are the rules; what one doesn't say is taken from defaults. The most specific
	// path wins; what none matches passes through unguarded.
	Routes []dedup.Rule `yaml:"routes"`

	origins map[string]Origin
}

// LogConfig says what is logged, to standard error.
type LogConfig struct {
	// Level is the least severe level that is logged.
	Level Level `yaml:"level"`
	// Format is how a line looks.
	Format Format `yaml:"format"`
	// Access logs one line a request, at level info.
	Access bool `yaml:"access"`
}

// A Level is how severe a log line is.
type Level string

// The levels, from the least severe.
const (
	LevelDebug Level = "debug"
	LevelInfo  Level = "info"
	LevelWarn  Level = "warn"
	LevelError Level = "error"
)

// A Format is how log lines look.
type Format string

// The formats of a log line.
const (
	FormatJSON    Format = "json"    // one JSON object
	FormatConsole Format = "console" // for people
)

// Default is the configuration of an empty file.
func Default() Config {
	return Config{
		Server:   proxy.DefaultServerConfig(),
		Admin:    proxy.DefaultAdminConfig(),
		Control:  proxy.DefaultControlConfig(),
		Upstream: proxy.DefaultUpstreamConfig(),
		Limits:   proxy.DefaultLimitsConfig(),
		Store:    store.DefaultConfig(),
		Log:      LogConfig{Level: LevelInfo, Format: FormatJSON, Access: true},
		Tracing:  proxy.DefaultTracingConfig(),
		Defaults: dedup.DefaultRule(),
	}
}

// Origin is where a setting was given, as file:line:column, "environment NAME" or
// "flag --name"; for what a route took from defaults it is the place there. It is
// "default" for what nobody set.
func (c *Config) Origin(path string) string {
	if at, ok := c.origins[path]; ok {
		return at.String()
	}
	if _, field, ok := strings.Cut(path, "]."); ok && strings.HasPrefix(path, "routes[") {
		if at, ok := c.origins["defaults."+field]; ok {
			return at.String()
		}
	}
	return "default"
}

// Validate returns everything that is wrong; it is pure.
func (c *Config) Validate() []dedup.Fault {
	faults := below("server", c.Server.Validate())
	faults = append(faults, below("admin", c.Admin.Validate())...)
	faults = append(faults, below("control", c.Control.Validate())...)
	faults = append(faults, below("upstream", c.Upstream.Validate())...)
	faults = append(faults, below("limits", c.Limits.Validate())...)
	faults = append(faults, below("store", c.Store.Validate())...)
	faults = append(faults, below("log", c.Log.Validate())...)
	faults = append(faults, below("tracing", c.Tracing.Validate())...)
	faults = append(faults, below("defaults", c.validateDefaults())...)
	for i := range c.Routes {
		faults = append(faults, below(fmt.Sprintf("routes[%d]", i), c.Routes[i].Validate())...)
	}
	faults = append(faults, c.validateNames()...)
	faults = append(faults, besides(faults, proxy.CheckRoutes(c.Routes))...)
	faults = append(faults, c.validateBodies()...)
	return append(faults, c.validateAddresses()...)
}

// Validate returns what is wrong with the log section.
func (c LogConfig) Validate() []dedup.Fault {
	var faults []dedup.Fault
	if !slices.Contains([]Level{LevelDebug, LevelInfo, LevelWarn, LevelError}, c.Level) {
		faults = append(faults, dedup.Fault{Path: "level", Message: "must be debug, info, warn or error"})
	}
	if c.Format != FormatJSON && c.Format != FormatConsole {
		faults = append(faults, dedup.Fault{Path: "format", Message: "must be json or console"})
	}
	return faults
}

// below puts the faults of a section under its path.
func below(path string, faults []dedup.Fault) []dedup.Fault {
	for i := range faults {
		faults[i].Path = join(path, faults[i].Path)
	}
	return faults
}

// besides is what of more concerns settings that have no fault yet.
func besides(faults, more []dedup.Fault) []dedup.Fault {
	return slices.DeleteFunc(more, func(m dedup.Fault) bool {
		return slices.ContainsFunc(faults, func(f dedup.Fault) bool { return f.Path == m.Path })
	})
}

// ownKeys are the fields of a route that defaults can't set.
func ownKeys() []string { return []string{"name", "methods", "host", "path"} }

// validateDefaults checks what routes start from as if it were one.
func (c *Config) validateDefaults() []dedup.Fault {
	rule := c.Defaults
	rule.Name, rule.Methods, rule.Path = "defaults", []string{"POST"}, "/"
	return rule.Validate()
}

// validateNames checks that no two routes share a name.
func (c *Config) validateNames() []dedup.Fault {
	var faults []dedup.Fault
	first := map[string]int{}
	for i, r := range c.Routes {
		j, again := first[r.Name]
		switch {
		case r.Name == "":
		case again:
			faults = append(faults, dedup.Fault{
				Path:    fmt.Sprintf("routes[%d].name", i),
				Message: fmt.Sprintf("is the name of routes[%d] too; names tell routes apart in metrics and logs", j),
			})
		default:
			first[r.Name] = i
		}
	}
	return faults
}

// validateBodies checks that the largest body that a route takes fits into memory: there
// would be no room for it however often a caller came back.
func (c *Config) validateBodies() []dedup.Fault {
	for i, r := range c.Routes {
		if r.Mode == dedup.ModeEnforce && c.Limits.MaxBufferedBytes > 0 && r.MaxRequestBody >= c.Limits.MaxBufferedBytes {
			return []dedup.Fault{{
				Path:    "limits.max_buffered_bytes",
				Message: fmt.Sprintf("must be more than max_request_body of every route, and routes[%d].max_request_body (%d bytes) is not less: such a body would be refused as overloaded for ever; raise the one or lower the other", i, int64(r.MaxRequestBody)),
			}}
		}
	}
	return nil
}

// validateAddresses checks that the proxy doesn't forward to itself, and that its
// listeners differ.
func (c *Config) validateAddresses() []dedup.Fault {
	var faults []dedup.Fault
	if u, err := url.Parse(c.Upstream.URL); err == nil && u.Scheme != "unix" {
		port := u.Port()
		if port == "" {
			port = map[string]string{"http": "80", "h2c": "80", "https": "443"}[u.Scheme]
		}
		ours := []string{c.Server.Listen, c.Admin.Listen, c.Control.Listen}
		if slices.ContainsFunc(ours, func(listen string) bool { return reaches(u.Hostname(), port, listen) }) {
			faults = append(faults, dedup.Fault{Path: "upstream.url", Message: "leads to this proxy itself, to server.listen, admin.listen or control.listen; it must lead to the service behind it"})
		}
	}
	first := map[string]string{c.Server.Listen: "server.listen"}
	for _, l := range []struct{ path, address string }{{"admin.listen", c.Admin.Listen}, {"control.listen", c.Control.Listen}} {
		switch other, taken := first[l.address]; {
		case l.address == "" || strings.HasSuffix(l.address, ":0"):
		case taken:
			faults = append(faults, dedup.Fault{Path: l.path, Message: "is the address of " + other + " too; each needs its own"})
		default:
			first[l.address] = l.path
		}
	}
	return faults
}

// reaches reports whether connecting to host:port on this machine surely ends at the
// listen address.
func reaches(host, port, listen string) bool {
	listenHost, listenPort, err := net.SplitHostPort(listen)
	if err != nil || listenPort != port || port == "0" {
		return false
	}
	loopback := func(h string) bool { ip := net.ParseIP(h); return h == "localhost" || ip != nil && ip.IsLoopback() }
	ip := net.ParseIP(listenHost)
	everywhere := listenHost == "" || ip != nil && ip.IsUnspecified()
	return strings.EqualFold(host, listenHost) || loopback(host) && (everywhere || listenHost == "localhost")
}
