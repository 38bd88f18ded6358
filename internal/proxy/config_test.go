package proxy

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"idemproxy/internal/dedup"
)

func TestDefaultConfigs(t *testing.T) {
	for name, faults := range map[string][]dedup.Fault{
		"server":   DefaultServerConfig().Validate(),
		"admin":    DefaultAdminConfig().Validate(),
		"upstream": DefaultUpstreamConfig().Validate(),
		"limits":   DefaultLimitsConfig().Validate(),
		"tracing":  DefaultTracingConfig().Validate(),
	} {
		if len(faults) > 0 {
			t.Errorf("the defaults of %s have faults: %v", name, faults)
		}
	}
	server, admin, up, limits := DefaultServerConfig(), DefaultAdminConfig(), DefaultUpstreamConfig(), DefaultLimitsConfig()
	for name, ok := range map[string]bool{ // contract §5
		"server.listen":              server.Listen == ":8080",
		"server.read_header_timeout": server.ReadHeaderTimeout == 10*time.Second,
		"server.body_timeout":        server.BodyTimeout == 30*time.Second,
		"server.idle_timeout":        server.IdleTimeout == 120*time.Second,
		"server.drain_delay":         server.DrainDelay == 0,
		"server.shutdown_grace":      server.ShutdownGrace == 30*time.Second,
		"admin.listen":               admin.Listen == ":9090",
		"admin.ready_requires_store": admin.ReadyRequiresStore,
		"upstream.url":               up.URL == "http://127.0.0.1:3000",
		"upstream.connect_timeout":   up.ConnectTimeout == 5*time.Second,
		"upstream.response_timeout":  up.ResponseTimeout == 60*time.Second,
		"upstream.max_idle_conns":    up.MaxIdleConns == 256,
		"upstream.preserve_host":     up.PreserveHost,
		"server.tls":                 server.TLS == ServerTLS{},
		"server.max_connections":     server.MaxConnections == 0,
		"server.trusted_proxies":     slices.Equal(server.TrustedProxies, []string{"loopback", "private"}),
		"upstream.tls":               up.TLS == UpstreamTLS{},
		"limits.max_concurrent":      limits.MaxConcurrent == 0,
		"limits.max_buffered_bytes":  limits.MaxBufferedBytes == 256<<20,
	} {
		if !ok {
			t.Errorf("the default of %s is not the contract's", name)
		}
	}
}

// wantFault wants exactly one fault at path, with a fragment of its message.
func wantFault(t *testing.T, faults []dedup.Fault, path, fragment string) {
	t.Helper()
	if len(faults) != 1 || faults[0].Path != path || !strings.Contains(faults[0].Message, fragment) {
		t.Errorf("faults %q, want one at %s: …%s…", faults, path, fragment)
	}
}

func TestServerConfigValidate(t *testing.T) {
	for _, tc := range []struct {
		change         func(*ServerConfig)
		path, fragment string
	}{
		{func(c *ServerConfig) { c.Listen = "" }, "listen", "must be an address"},
		{func(c *ServerConfig) { c.Listen = "8080" }, "listen", "must be an address"},
		{func(c *ServerConfig) { c.Listen = "localhost" }, "listen", "must be an address"},
		{func(c *ServerConfig) { c.Listen = "localhost:" }, "listen", "must be an address"},
		{func(c *ServerConfig) { c.Listen = "::1:8080" }, "listen", "must be an address"},
		{func(c *ServerConfig) { c.ReadHeaderTimeout = 0 }, "read_header_timeout", "more than 0"},
		{func(c *ServerConfig) { c.BodyTimeout = 0 }, "body_timeout", "more than 0"},
		{func(c *ServerConfig) { c.IdleTimeout = -1 }, "idle_timeout", "more than 0"},
		{func(c *ServerConfig) { c.ShutdownGrace = 0 }, "shutdown_grace", "more than 0"},
		{func(c *ServerConfig) { c.DrainDelay = -1 }, "drain_delay", "not be negative"},
		{func(c *ServerConfig) { c.SendTimeout = 0 }, "send_timeout", "more than 0"},
		{func(c *ServerConfig) { c.MaxConnections = -1 }, "max_connections", "not be negative"},
		{func(c *ServerConfig) { c.TrustedProxies = []string{"private", "public"} }, "trusted_proxies[1]", "must be a CIDR"},
		{func(c *ServerConfig) { c.TrustedProxies = []string{"10.0.0.0/33"} }, "trusted_proxies[0]", "must be a CIDR"},
		{func(c *ServerConfig) { c.TrustedProxies = []string{"Loopback"} }, "trusted_proxies[0]", "must be a CIDR"},
		{func(c *ServerConfig) { c.TrustedProxies = []string{"10.0.0.1:80"} }, "trusted_proxies[0]", "must be a CIDR"},
		{func(c *ServerConfig) { c.TrustedProxies = []string{""} }, "trusted_proxies[0]", "must be a CIDR"},
		{func(c *ServerConfig) { c.TLS.CertFile = "c" }, "tls.cert_file", "tls.key_file beside it"},
		{func(c *ServerConfig) { c.TLS.KeyFile = "k" }, "tls.key_file", "tls.cert_file beside it"},
		{func(c *ServerConfig) { c.TLS.ClientCAFile = "a" }, "tls.client_ca_file", "no effect"},
		{func(c *ServerConfig) { c.SendTimeout = 0 }, "send_timeout", "more than 0"},
		{func(c *ServerConfig) { c.MaxConnections = -1 }, "max_connections", "not be negative"},
		{func(c *ServerConfig) { c.TrustedProxies = []string{"loopback", "10.0.0.0/33"} }, "trusted_proxies[1]", "CIDR"},
		{func(c *ServerConfig) { c.TLS.CertFile = "cert.pem" }, "tls.cert_file", "tls.key_file"},
		{func(c *ServerConfig) { c.TLS.KeyFile = "key.pem" }, "tls.key_file", "tls.cert_file"},
		{func(c *ServerConfig) { c.TLS.ClientCAFile = "ca.pem" }, "tls.client_ca_file", "no effect"},
	} {
		c := DefaultServerConfig()
		tc.change(&c)
		wantFault(t, c.Validate(), tc.path, tc.fragment)
	}
	for _, listen := range []string{":0", "127.0.0.1:8080", "[::1]:8080", "localhost:http", "0.0.0.0:8080"} {
		c := DefaultServerConfig()
		c.Listen = listen
		if faults := c.Validate(); len(faults) > 0 {
			t.Errorf("%s: faults %v", listen, faults)
		}
	}
	c := DefaultServerConfig()
	c.TLS = ServerTLS{CertFile: "c", KeyFile: "k", ClientCAFile: "a"}
	c.MaxConnections = 1
	c.TrustedProxies = []string{"loopback", "private", "192.0.2.0/24", "192.0.2.7", "2001:db8::/32", "::1"}
	if faults := c.Validate(); len(faults) > 0 {
		t.Errorf("faults %v", faults)
	}
	if faults := (ServerConfig{DrainDelay: -1}).Validate(); len(faults) != 7 {
		t.Errorf("faults %v, want all at once", faults)
	}
}

func TestAdminConfigValidate(t *testing.T) {
	if faults := (AdminConfig{}).Validate(); len(faults) > 0 {
		t.Errorf("no admin listener: faults %v", faults)
	}
	wantFault(t, AdminConfig{Listen: "9090"}.Validate(), "listen", "must be an address")
}

func TestUpstreamConfigValidate(t *testing.T) {
	for _, tc := range []struct {
		change         func(*UpstreamConfig)
		path, fragment string
	}{
		{func(c *UpstreamConfig) { c.ConnectTimeout = 0 }, "connect_timeout", "more than 0"},
		{func(c *UpstreamConfig) { c.ResponseTimeout = -time.Second }, "response_timeout", "more than 0"},
		{func(c *UpstreamConfig) { c.MaxIdleConns = 0 }, "max_idle_conns", "at least 1"},
		{func(c *UpstreamConfig) { c.MaxIdleConns = -1 }, "max_idle_conns", "at least 1"},
		{func(c *UpstreamConfig) { c.TLS.CAFile = "a" }, "tls", "not https"},
		{func(c *UpstreamConfig) { c.TLS.InsecureSkipVerify = true }, "tls", "not https"},
		{func(c *UpstreamConfig) { c.URL = "h2c://up:1"; c.TLS.CertFile, c.TLS.KeyFile = "c", "k" }, "tls", "not https"},
		{func(c *UpstreamConfig) { c.URL = "https://up"; c.TLS.CertFile = "c" }, "tls.cert_file", "tls.key_file beside it"},
		{func(c *UpstreamConfig) { c.URL = "https://up"; c.TLS.KeyFile = "k" }, "tls.key_file", "tls.cert_file beside it"},
		{func(c *UpstreamConfig) { c.URL = "https://up"; c.TLS.CAFile, c.TLS.InsecureSkipVerify = "a", true }, "tls.ca_file", "no effect"},
	} {
		c := DefaultUpstreamConfig()
		tc.change(&c)
		wantFault(t, c.Validate(), tc.path, tc.fragment)
	}
	if faults := (UpstreamConfig{}).Validate(); len(faults) != 4 {
		t.Errorf("faults %v, want all at once", faults)
	}
}

func TestLimitsConfigValidate(t *testing.T) {
	for _, tc := range []struct {
		limits         LimitsConfig
		path, fragment string
	}{
		{LimitsConfig{MaxConcurrent: -1, MaxBufferedBytes: 1}, "max_concurrent", "not be negative"},
		{LimitsConfig{}, "max_buffered_bytes", "more than 0"},
		{LimitsConfig{MaxBufferedBytes: -1}, "max_buffered_bytes", "more than 0"},
	} {
		wantFault(t, tc.limits.Validate(), tc.path, tc.fragment)
	}
	if faults := (LimitsConfig{MaxConcurrent: 1, MaxBufferedBytes: 1}).Validate(); len(faults) > 0 {
		t.Errorf("faults %v", faults)
	}
}

func TestUpstreamURL(t *testing.T) {
	for _, url := range []string{
		"http://127.0.0.1:3000", "http://localhost", "http://[::1]:3000", "https://api.example.com", "h2c://127.0.0.1:50051",
		"http://127.0.0.1:3000/", "HTTP://LOCALHOST:80", "unix:///run/app.sock", "http://payments.default.svc.cluster.local",
	} {
		c := DefaultUpstreamConfig()
		c.URL = url
		if faults := c.Validate(); len(faults) > 0 {
			t.Errorf("%s: faults %v", url, faults)
		}
		if _, err := newUpstream(c); err != nil {
			t.Errorf("%s: %v", url, err)
		}
	}
	for url, fragment := range map[string]string{
		"":                             "must begin with",
		"localhost:3000":               "must begin with",
		"127.0.0.1:3000":               "not a URL",
		"//localhost:3000":             "must begin with",
		"ftp://localhost":              "must begin with",
		"tcp://localhost:3000":         "must begin with",
		"http:localhost":               "has no host: use http://host:port",
		"h2c://":                       "has no host: use h2c://host:port",
		"http://:3000":                 "has no host",
		"http://localhost/api":         "must end after the host",
		"https://localhost//":          "must end after the host",
		"http://localhost?a=SEKRIT":    "neither query nor fragment",
		"http://localhost/#SEKRIT":     "neither query nor fragment",
		"http://user:SEKRIT@localhost": "no user or password",
		"http://SEKRIT@localhost":      "no user or password",
		"http://localhost:SEKRIT":      "not a URL",
		"http://local host/SEKRIT":     "not a URL",
		"http://localhost/%zzSEKRIT":   "not a URL",
		"unix://":                      "must begin with",
		"unix://run/app.sock":          "must begin with",
		"unix:app.sock":                "must begin with",
		"unix:///run/app.sock?SEKRIT":  "neither query nor fragment",
		"://SEKRIT":                    "not a URL",
		"http://[::1":                  "not a URL",
	} {
		c := DefaultUpstreamConfig()
		c.URL = url
		faults := c.Validate()
		wantFault(t, faults, "url", fragment)
		if strings.Contains(fmt.Sprint(faults), "SEKRIT") {
			t.Errorf("the fault of %s repeats it: %v", url, faults)
		}
		if _, err := newUpstream(c); err == nil || strings.Contains(err.Error(), "SEKRIT") {
			t.Errorf("%s: %v", url, err)
		}
	}
}
