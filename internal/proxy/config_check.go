package proxy

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"strings"
	"time"

	"idemproxy/internal/dedup"
)

// Validate returns what is wrong with the server section.
func (c ServerConfig) Validate() []dedup.Fault {
	faults := address("listen", c.Listen)
	faults = append(faults, keyPair(c.TLS.CertFile, c.TLS.KeyFile)...)
	if c.TLS.ClientCAFile != "" && c.TLS.CertFile == "" {
		faults = append(faults, dedup.Fault{Path: "tls.client_ca_file", Message: "has no effect without tls.cert_file and tls.key_file"})
	}
	faults = append(faults, positive("read_header_timeout", c.ReadHeaderTimeout)...)
	faults = append(faults, positive("body_timeout", c.BodyTimeout)...)
	faults = append(faults, positive("send_timeout", c.SendTimeout)...)
	faults = append(faults, positive("idle_timeout", c.IdleTimeout)...)
	faults = append(faults, positive("shutdown_grace", c.ShutdownGrace)...)
	if c.DrainDelay < 0 {
		faults = append(faults, dedup.Fault{Path: "drain_delay", Message: "must not be negative"})
	}
	if c.MaxConnections < 0 {
		faults = append(faults, dedup.Fault{Path: "max_connections", Message: "must not be negative; 0 means no bound"})
	}
	if c.StatusPath != "" && (c.StatusPath == "/" || cleanPath(c.StatusPath) != c.StatusPath || strings.ContainsAny(c.StatusPath, "?#%{} ")) {
		faults = append(faults, dedup.Fault{Path: "status_path", Message: "must be a plain path below /, such as /.idempotency"})
	}
	for i, entry := range c.TrustedProxies {
		if _, err := trustedRanges(entry); err != nil {
			faults = append(faults, dedup.Fault{Path: fmt.Sprintf("trusted_proxies[%d]", i), Message: err.Error()})
		}
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
	target, err := c.target()
	if err != nil {
		faults = append(faults, dedup.Fault{Path: "url", Message: err.Error()})
	}
	faults = append(faults, positive("connect_timeout", c.ConnectTimeout)...)
	faults = append(faults, positive("response_timeout", c.ResponseTimeout)...)
	if c.MaxIdleConns < 1 {
		faults = append(faults, dedup.Fault{Path: "max_idle_conns", Message: "must be at least 1"})
	}
	faults = append(faults, keyPair(c.TLS.CertFile, c.TLS.KeyFile)...)
	if c.TLS.CAFile != "" && c.TLS.InsecureSkipVerify {
		faults = append(faults, dedup.Fault{Path: "tls.ca_file", Message: "has no effect while tls.insecure_skip_verify takes any certificate"})
	}
	if target != nil && target.Scheme != "https" && c.TLS != (UpstreamTLS{}) {
		faults = append(faults, dedup.Fault{Path: "tls", Message: "has no effect: upstream.url is not https"})
	}
	return faults
}

// Validate returns what is wrong with the limits section.
func (c LimitsConfig) Validate() []dedup.Fault {
	var faults []dedup.Fault
	if c.MaxConcurrent < 0 {
		faults = append(faults, dedup.Fault{Path: "max_concurrent", Message: "must not be negative; 0 means no bound"})
	}
	if c.MaxBufferedBytes <= 0 {
		faults = append(faults, dedup.Fault{Path: "max_buffered_bytes", Message: "must be more than 0, such as 256MiB"})
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
	_, port, err := net.SplitHostPort(addr)
	if err == nil {
		_, err = net.DefaultResolver.LookupPort(context.Background(), "tcp", port)
	}
	if err != nil || port == "" {
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

func keyPair(cert, key string) []dedup.Fault {
	switch {
	case cert != "" && key == "":
		return []dedup.Fault{{Path: "tls.cert_file", Message: "needs tls.key_file beside it"}}
	case cert == "" && key != "":
		return []dedup.Fault{{Path: "tls.key_file", Message: "needs tls.cert_file beside it"}}
	}
	return nil
}
