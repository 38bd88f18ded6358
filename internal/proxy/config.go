package proxy

import (
	"fmt"
	"net"
	"net/url"
	"strings"
	"time"

	"idemproxy/internal/dedup"
)

// ServerConfig is the listener that callers reach.
type ServerConfig struct {
	// Listen is the address, as host:port.
	Listen string `yaml:"listen"`
	// ReadHeaderTimeout bounds the time to receive a request's head.
	ReadHeaderTimeout time.Duration `yaml:"read_header_timeout"`
	// BodyTimeout bounds the time to receive the whole body of a guarded request.
	BodyTimeout time.Duration `yaml:"body_timeout"`
	// IdleTimeout closes a connection that waits for its next request.
	IdleTimeout time.Duration `yaml:"idle_timeout"`
	// DrainDelay is how long the proxy goes on serving, not ready, after SIGTERM.
	DrainDelay time.Duration `yaml:"drain_delay"`
	// ShutdownGrace bounds the time for running requests to end and be recorded.
	ShutdownGrace time.Duration `yaml:"shutdown_grace"`
}

// AdminConfig is the listener for probes and metrics. Nothing on it changes anything.
type AdminConfig struct {
	// Listen is the address; empty means no admin listener.
	Listen string `yaml:"listen"`
	// ReadyRequiresStore makes /readyz fail while the store can't be written.
	ReadyRequiresStore bool `yaml:"ready_requires_store"`
}

// UpstreamConfig is the service behind the proxy.
type UpstreamConfig struct {
	// URL is http://host:port, https://host:port, h2c://host:port or unix:///path/to.sock.
	URL string `yaml:"url"`
	// ConnectTimeout bounds dialling and, for https, the handshake.
	ConnectTimeout time.Duration `yaml:"connect_timeout"`
	// ResponseTimeout bounds a guarded request from its last byte to the answer's last
	// byte.
	ResponseTimeout time.Duration `yaml:"response_timeout"`
	// MaxIdleConns is how many connections are kept for the next requests.
	MaxIdleConns int `yaml:"max_idle_conns"`
	// PreserveHost forwards the caller's Host, otherwise the upstream's own is sent.
	PreserveHost bool `yaml:"preserve_host"`
}

// DefaultServerConfig has the defaults of the server section.
func DefaultServerConfig() ServerConfig {
	return ServerConfig{
		Listen:            ":8080",
		ReadHeaderTimeout: 10 * time.Second,
		BodyTimeout:       30 * time.Second,
		IdleTimeout:       120 * time.Second,
		ShutdownGrace:     30 * time.Second,
	}
}

// DefaultAdminConfig has the defaults of the admin section.
func DefaultAdminConfig() AdminConfig {
	return AdminConfig{Listen: ":9090", ReadyRequiresStore: true}
}

// DefaultUpstreamConfig has the defaults of the upstream section.
func DefaultUpstreamConfig() UpstreamConfig {
	return UpstreamConfig{
		URL:             "http://127.0.0.1:3000",
		ConnectTimeout:  5 * time.Second,
		ResponseTimeout: 60 * time.Second,
		MaxIdleConns:    256,
		PreserveHost:    true,
	}
}

// Validate returns what is wrong with the server section.
func (c ServerConfig) Validate() []dedup.Fault {
	faults := address("listen", c.Listen)
	faults = append(faults, positive("read_header_timeout", c.ReadHeaderTimeout)...)
	faults = append(faults, positive("body_timeout", c.BodyTimeout)...)
	faults = append(faults, positive("idle_timeout", c.IdleTimeout)...)
	faults = append(faults, positive("shutdown_grace", c.ShutdownGrace)...)
	if c.DrainDelay < 0 {
		faults = append(faults, dedup.Fault{Path: "drain_delay", Message: "must not be negative"})
	}
	return faults
}

// Validate returns what is wrong with the admin section.
func (c AdminConfig) Validate() []dedup.Fault {
	if c.Listen == "" {
		return nil
	}
	return address("listen", c.Listen)
}

// Validate returns what is wrong with the upstream section.
func (c UpstreamConfig) Validate() []dedup.Fault {
	var faults []dedup.Fault
	if _, err := c.target(); err != nil {
		faults = append(faults, dedup.Fault{Path: "url", Message: err.Error()})
	}
	faults = append(faults, positive("connect_timeout", c.ConnectTimeout)...)
	faults = append(faults, positive("response_timeout", c.ResponseTimeout)...)
	if c.MaxIdleConns < 1 {
		faults = append(faults, dedup.Fault{Path: "max_idle_conns", Message: "must be at least 1"})
	}
	return faults
}

// target parses the upstream's URL. Its errors never repeat it: it may hold a password.
func (c UpstreamConfig) target() (*url.URL, error) {
	u, err := url.Parse(c.URL)
	switch {
	case err != nil:
		return nil, fmt.Errorf("not a URL: use http://host:port, https://host:port, h2c://host:port or unix:///path/to.sock")
	case u.User != nil:
		return nil, fmt.Errorf("must hold no user or password")
	case u.RawQuery != "" || u.Fragment != "":
		return nil, fmt.Errorf("must have neither query nor fragment")
	case u.Scheme == "unix" && u.Host == "" && strings.HasPrefix(u.Path, "/"):
		return u, nil
	case u.Scheme != "http" && u.Scheme != "https" && u.Scheme != "h2c":
		return nil, fmt.Errorf("must begin with http://, https://, h2c:// or unix:///")
	case u.Hostname() == "":
		return nil, fmt.Errorf("has no host: use %s://host:port", u.Scheme)
	case u.Path != "" && u.Path != "/":
		return nil, fmt.Errorf("must end after the host: requests are forwarded with their own path")
	}
	return u, nil
}

func address(path, addr string) []dedup.Fault {
	if _, port, err := net.SplitHostPort(addr); err != nil || port == "" {
		return []dedup.Fault{{Path: path, Message: `must be an address, such as ":8080" or "127.0.0.1:8080"`}}
	}
	return nil
}

func positive(path string, d time.Duration) []dedup.Fault {
	if d <= 0 {
		return []dedup.Fault{{Path: path, Message: "must be more than 0, such as 30s"}}
	}
	return nil
}
